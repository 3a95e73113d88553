use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pillion_path::Counts;
use pillion_report::Distribution;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::DemoConfig;
use crate::lane::Receiving;
use crate::{Error, Lane};

/// One group of streams at work.
pub(super) struct Group {
    name: &'static str,
    lane: Lane,
    receiving: Receiving,
    sender: Child,
    command: String,
    /// Where `pillion run` writes its account, in the bundled group.
    account: Option<PathBuf>,
}

/// What one group of streams experienced.
#[derive(Debug, Clone, Serialize)]
pub struct GroupResult {
    /// Messages delivered; every byte of them was verified.
    pub messages: u64,
    /// Delivery latency in milliseconds: from the application's write to the other
    /// application's read.
    #[serde(rename = "latency_ms", serialize_with = "quantiles")]
    pub latency: Distribution,
    /// Segments that TCP sent again.
    pub retransmissions: u64,
    /// The path's account of the data direction.
    pub path: Counts,
    /// By how much messages were handed over late, 99th percentile, in microseconds.
    pub send_error_p99_us: f64,
    /// What the bundler counted, in the bundled group.
    pub bundler: Option<Value>,
    /// The command that sent.
    pub command: String,
}

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

impl Group {
    pub fn start(
        name: &'static str,
        config: &DemoConfig,
        pillion: &Path,
        account: Option<&Path>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let lane = Lane::create(name, &config.path())?;
        let receiving = lane.receive(config.streams, Arc::clone(stop))?;
        let mut arguments = config.sender(receiving.address);
        if let Some(account) = account {
            arguments = bundled(config, pillion, account, arguments);
        }
        let mut sender = lane.sender.namespace.command(pillion);
        sender
            .args(&arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let sender = spawn(&mut sender)?;
        Ok(Self {
            name,
            lane,
            receiving,
            sender,
            command: format!("pillion {}", arguments.join(" ")),
            account: account.map(Path::to_owned),
        })
    }

    pub fn has_ended(&mut self) -> Result<bool, Error> {
        Ok(self.status()?.is_some())
    }

    pub fn has_failed(&mut self) -> Result<bool, Error> {
        Ok(self.status()?.is_some_and(|status| !status.success()))
    }

    fn status(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.sender.try_wait().map_err(|source| Error::System {
            action: "wait for a sender",
            source,
        })
    }

    /// Gathers the results of a sender that has ended.
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
            bundler: self.account.as_deref().map(read_account).transpose()?,
            command: self.command,
        })
    }
}

/// The sender's arguments with `pillion run` before them.
fn bundled(
    config: &DemoConfig,
    pillion: &Path,
    account: &Path,
    sender: Vec<String>,
) -> Vec<String> {
    let mut arguments = vec!["run".to_owned(), "--quiet".to_owned()];
    arguments.extend(["--stats".to_owned(), account.display().to_string()]);
    arguments.extend(config.bundling.iter().cloned());
    arguments.extend(["--".to_owned(), pillion.display().to_string()]);
    arguments.extend(sender);
    arguments
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

fn quantiles<S: serde::Serializer>(
    latency: &Distribution,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(
        super::table::QUANTILES
            .iter()
            .map(|(name, q)| (*name, latency.quantile(*q))),
    )
}
