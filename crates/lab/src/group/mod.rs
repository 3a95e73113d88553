//! Thin streams over a path of their own.

mod config;
mod result;
mod together;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pillion_report::Distribution;
use serde::Deserialize;
use serde_json::Value;

pub use config::GroupConfig;
pub use result::GroupResult;
pub use together::run_together;

use crate::host_pair::Receiving;
use crate::{Error, HostPair};

/// One group of streams at work.
#[derive(Debug)]
pub struct Group {
    name: String,
    pair: HostPair,
    duration: Duration,
    receiving: Receiving,
    stop: Arc<AtomicBool>,
    sender: Child,
    command: String,
    /// Where `pillion run` leaves its account, in a bundled group: a file without a name, so
    /// that nothing stays behind.
    account: Option<File>,
}

/// What of the sender's report is used.
#[derive(Deserialize)]
struct Sent {
    messages: u64,
    retransmissions: Option<u64>,
    failed: usize,
    send_error_us: Lateness,
}

#[derive(Deserialize)]
struct Lateness {
    p99: f64,
}

/// A shell's script that says that it is there, waits to be told to go on, and becomes the command
/// of its arguments.
const GATE: &str = "echo && read -r _ && exec \"$@\"";

impl Group {
    /// Makes the pair of hosts, and a sender that waits to be let go. `pillion` is the binary whose
    /// `traffic` and `run` subcommands make the streams; `name` stands in messages.
    ///
    /// # Errors
    /// Any of [`Error`] but [`Error::Void`].
    pub fn start(name: &str, config: &GroupConfig, pillion: &Path) -> Result<Self, Error> {
        config.validate()?;
        let account = tempfile::tempfile().map_err(|source| Error::System {
            action: "make a temporary file",
            source,
        })?;
        let pair = HostPair::create(name, &config.path())?;
        let stop = Arc::new(AtomicBool::new(false));
        let receiving = pair.receive(config.streams, Arc::clone(&stop))?;
        let pillion = pillion.display().to_string();
        let stats = format!("/proc/{}/fd/{}", std::process::id(), account.as_raw_fd());
        let arguments = |pillion: &str, stats: &[&str], gate: &[&str]| {
            let mut arguments = bundling(config, pillion, stats);
            arguments.extend(gate.iter().copied().map(String::from));
            arguments.push(pillion.to_owned());
            arguments.extend(config.sender(receiving.address));
            arguments
        };
        let gate = ["/bin/sh", "-c", GATE, "gate"];
        let gated = arguments(&pillion, &["--stats", &stats], &gate);
        let command = arguments("pillion", &[], &[]).join(" ");
        let mut sender = pair.sender.namespace.command(&gated[0]);
        sender
            .args(&gated[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let sender = spawn(&mut sender)?;
        Ok(Self {
            name: name.to_owned(),
            pair,
            duration: Duration::try_from_secs_f64(config.duration_s).unwrap_or_default(),
            receiving,
            stop,
            sender,
            command,
            account: config.bundling.is_some().then_some(account),
        })
    }

    /// The group's hosts and path.
    #[must_use]
    pub fn pair(&self) -> &HostPair {
        &self.pair
    }

    /// Waits until the sender stands before its gate. A sender that failed is found out at the end.
    fn await_ready(&mut self) {
        if let Some(output) = &mut self.sender.stdout {
            let _ = output.read_exact(&mut [0]);
        }
    }

    /// Lets the sender go.
    fn open(&mut self) {
        drop(
            self.sender
                .stdin
                .take()
                .map(|mut gate| gate.write_all(b"\n")),
        );
    }

    fn has_ended(&mut self) -> Result<bool, Error> {
        let status = self.sender.try_wait().map_err(|source| Error::System {
            action: "wait for a sender",
            source,
        })?;
        // A receiver whose sender failed waits in vain.
        if status.is_some_and(|status| !status.success()) {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(status.is_some())
    }

    /// Gathers the group's results, once the sender has ended.
    ///
    /// # Errors
    /// [`Error::Void`] if a byte was lost or wrong or the sender failed, or any other.
    pub fn finish(self) -> Result<GroupResult, Error> {
        let void = |why: String| Error::Void(format!("{}: {why}", self.name));
        let output = self
            .sender
            .wait_with_output()
            .map_err(|source| Error::System {
                action: "read a sender's report",
                source,
            })?;
        let received = self.receiving.finish()?;
        let ledger = self.pair.path.stop();
        if let Some(device) = ledger.device_gone {
            return Err(void(format!("the device {device} vanished")));
        }
        if !output.status.success() {
            return Err(void(format!("the sender ended with {}", output.status)));
        }
        let sent: Sent = serde_json::from_slice(&output.stdout)
            .map_err(|error| void(format!("the sender's report: {error}")))?;
        let report = &received.report;
        let wrong = report.streams.iter().find(|stream| stream.fault.is_some());
        if let Some(stream) = wrong {
            return Err(void(stream.to_string()));
        }
        if report.messages != sent.messages || sent.failed > 0 {
            return Err(void(format!(
                "{} of {} messages came",
                report.messages, sent.messages
            )));
        }
        let retransmissions = sent
            .retransmissions
            .ok_or_else(|| void("the kernel does not count retransmissions".to_owned()))?;
        Ok(GroupResult {
            messages: report.messages,
            latency: Distribution::new(
                received
                    .records
                    .iter()
                    .map(|record| record.latency_us / 1e3),
            ),
            retransmissions,
            path: ledger.forward,
            send_error_p99_us: sent.send_error_us.p99,
            bundler: self.account.map(read_account).transpose()?,
            command: self.command,
        })
    }
}

/// The command `pillion run` with its options, for a bundled group.
fn bundling(config: &GroupConfig, pillion: &str, stats: &[&str]) -> Vec<String> {
    let Some(options) = &config.bundling else {
        return Vec::new();
    };
    let mut run = Vec::from([pillion, "run", "--quiet"].map(String::from));
    run.extend(stats.iter().copied().map(String::from));
    run.extend(options.iter().cloned());
    run.push("--".to_owned());
    run
}

fn spawn(command: &mut Command) -> Result<Child, Error> {
    command.spawn().map_err(|source| Error::System {
        action: "start a sender",
        source,
    })
}

fn read_account(mut file: File) -> Result<Value, Error> {
    let action = "read the bundler's account";
    let mut text = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut text))
        .map_err(|source| Error::System { action, source })?;
    serde_json::from_slice(&text).map_err(|error| Error::System {
        action,
        source: error.into(),
    })
}
