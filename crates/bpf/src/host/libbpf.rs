//! Captures libbpf's messages, to report a failure in one line.

use std::io::{self, Write};
use std::sync::Mutex;

use libbpf_rs::{ErrorKind, PrintLevel};

/// Why eBPF programs are not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Loading failed for want of privilege.
    #[error("not permitted")]
    NotPermitted,
    /// Loading failed for this reason: the most specific line of libbpf or the verifier.
    #[error("{0}")]
    Reason(String),
}

/// The messages of libbpf, captured since [`LibbpfLog::capture`].
#[derive(Debug)]
pub struct LibbpfLog;

/// The line before the verifier's log.
const VERIFIER_LOG: &str = "BEGIN PROG LOAD LOG";

/// Messages that libbpf prints after the one about the failed program.
const SUMMARY_MESSAGES: [&str; 2] = ["load object", "load BPF skeleton"];

static LINES: Mutex<String> = Mutex::new(String::new());

impl LibbpfLog {
    /// Captures libbpf's messages from now on; `PILLION_LOG=libbpf` in the environment prints all
    /// of them instead.
    #[must_use]
    pub fn capture() -> Self {
        if std::env::var_os("PILLION_LOG").is_some_and(|value| value == "libbpf") {
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

    /// Converts an error, with its reason from the captured messages.
    #[must_use]
    pub fn to_error(&self, error: &libbpf_rs::Error) -> LoadError {
        let lines = LINES
            .lock()
            .map(|mut lines| std::mem::take(&mut *lines))
            .unwrap_or_default();
        // The verifier also returns EACCES, but with a log.
        if error.kind() == ErrorKind::PermissionDenied && !lines.contains(VERIFIER_LOG) {
            return LoadError::NotPermitted;
        }
        let cause = lines.lines().rfind(|line| {
            line.contains("failed to") && !SUMMARY_MESSAGES.iter().any(|it| line.contains(it))
        });
        LoadError::Reason(cause.map_or_else(
            || error.to_string(),
            |line| line.trim_start_matches("libbpf: ").to_owned(),
        ))
    }
}
