//! What libbpf would print, so that a failure can be told in one line.

use std::io::{self, Write};
use std::sync::Mutex;

use libbpf_rs::{ErrorKind, PrintLevel};

/// Why eBPF programs are not loaded.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Loading failed for want of privilege.
    #[error("not permitted")]
    NotPermitted,
    /// Loading failed for this reason: the line of libbpf's or the verifier's that tells most.
    #[error("{0}")]
    Because(String),
}

/// The messages of libbpf, kept from [`Messages::keep`] on.
#[derive(Debug)]
pub struct Messages;

/// The line with which libbpf begins to print what the verifier said.
const VERIFIER_LOG: &str = "BEGIN PROG LOAD LOG";

/// What libbpf prints of the whole when one program has failed, and has been named.
const AFTERWARDS: [&str; 2] = ["load object", "load BPF skeleton"];

static LINES: Mutex<String> = Mutex::new(String::new());

impl Messages {
    /// Keeps libbpf's messages from now on; `PILLION_LOG=libbpf` in the environment prints all of
    /// them instead.
    #[must_use]
    pub fn keep() -> Self {
        if std::env::var_os("PILLION_LOG").is_some_and(|wanted| wanted == "libbpf") {
            libbpf_rs::set_print(Some((PrintLevel::Debug, |_, text| {
                let _ = io::stderr().write_all(text.as_bytes());
            })));
        } else {
            libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
                if let Ok(mut lines) = LINES.lock() {
                    lines.push_str(&text);
                }
            })));
        }
        Self
    }

    /// Explains an error by the messages that were kept.
    #[must_use]
    pub fn explain(&self, error: &libbpf_rs::Error) -> Refusal {
        let lines = LINES
            .lock()
            .map(|mut lines| std::mem::take(&mut *lines))
            .unwrap_or_default();
        // The verifier says EACCES, too, but it says why.
        if error.kind() == ErrorKind::PermissionDenied && !lines.contains(VERIFIER_LOG) {
            return Refusal::NotPermitted;
        }
        let telling = lines.lines().rfind(|line| {
            line.contains("failed to") && !AFTERWARDS.iter().any(|it| line.contains(it))
        });
        Refusal::Because(telling.map_or_else(
            || error.to_string(),
            |line| line.trim_start_matches("libbpf: ").to_owned(),
        ))
    }
}
