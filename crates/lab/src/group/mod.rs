//! Thin streams over a path of their own.

mod config;
mod result;
mod together;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pillion_report::Distribution;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

pub use config::GroupConfig;
pub use result::GroupResult;
pub(crate) use result::QUANTILES;
pub use together::run_together;

use crate::lane::Receiving;
use crate::{Error, Lane};

/// One group of streams at work.
#[derive(Debug)]
pub struct Group {
    name: String,
    lane: Lane,
    duration: Duration,
    receiving: Receiving,
    stop: Arc<AtomicBool>,
    sender: Child,
    command: String,
    bundled: bool,
    folder: TempDir,
}

/// The file in which `pillion run` leaves its account.
const ACCOUNT: &str = "bundler.json";

/// What is used of the sender's report.
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

/// Says that it is there, and then waits to be told to go on as the arguments say.
const GATE: &str = "echo && read -r _ && exec \"$@\"";

impl Group {
    /// Makes the lane, and a sender that waits to be let go. `pillion` is the binary whose
    /// `traffic` and `run` subcommands make the streams; `name` stands in messages.
    ///
    /// # Errors
    /// Any of [`Error`] but [`Error::Void`].
    pub fn start(name: &str, config: &GroupConfig, pillion: &Path) -> Result<Self, Error> {
        config.validate()?;
        let folder = tempfile::tempdir().map_err(|source| Error::System {
            action: "make a temporary folder",
            source,
        })?;
        let lane = Lane::create(name, &config.path())?;
        let stop = Arc::new(AtomicBool::new(false));
        let receiving = lane.receive(config.streams, Arc::clone(&stop))?;
        let pillion = pillion.display().to_string();
        let account = folder.path().join(ACCOUNT).display().to_string();
        let arguments = |pillion: &str, gate: &[&str]| {
            let mut arguments = bundling(config, pillion, &account);
            arguments.extend(gate.iter().copied().map(String::from));
            arguments.push(pillion.to_owned());
            arguments.extend(config.sender(receiving.address));
            arguments
        };
        let gated = arguments(&pillion, &["/bin/sh", "-c", GATE, "gate"]);
        let command = arguments("pillion", &[]).join(" ");
        let mut sender = lane.sender.namespace.command(&gated[0]);
        sender
            .args(&gated[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let sender = spawn(&mut sender)?;
        Ok(Self {
            name: name.to_owned(),
            lane,
            duration: Duration::try_from_secs_f64(config.duration_s).unwrap_or_default(),
            receiving,
            stop,
            sender,
            command,
            bundled: config.bundling.is_some(),
            folder,
        })
    }

    /// Its hosts and its path.
    #[must_use]
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Waits until the sender stands before its gate. One that failed is found out at the
    /// end.
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

    /// Gathers the results, once the sender has ended.
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
        let ledger = self.lane.path.stop();
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
            bundler: match self.bundled {
                true => Some(read_account(&self.folder.path().join(ACCOUNT))?),
                false => None,
            },
            command: self.command,
        })
    }
}

/// `pillion run` with its options, for a bundled group.
fn bundling(config: &GroupConfig, pillion: &str, account: &str) -> Vec<String> {
    let Some(options) = &config.bundling else {
        return Vec::new();
    };
    let mut run = Vec::from([pillion, "run", "--quiet", "--stats", account].map(String::from));
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

fn read_account(path: &Path) -> Result<Value, Error> {
    let action = "read the bundler's account";
    let text = fs::read(path).map_err(|source| Error::System { action, source })?;
    serde_json::from_slice(&text).map_err(|error| Error::System {
        action,
        source: error.into(),
    })
}
