//! A run in a store, and the content of its files.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Error;
use crate::analysis::runs::{Stream, Totals};
use crate::run::{
    BUNDLING_FILE, FAILED_SUFFIX, GroupBundlingTotals, MANIFEST_FILE, PARTIAL_SUFFIX,
    RECEIVER_TRACE, RUN_FILE, SENDER_TRACE, STREAMS_FILE, SUMMARY_FILE, Summary,
};

/// A run in a store.
#[derive(Debug, Clone)]
pub struct StoredRun {
    /// The run's name, as in `plain,loss=2,seed=1`.
    pub name: String,
    /// The run's folder.
    pub path: PathBuf,
    /// Whether the run is complete.
    pub state: RunState,
}

/// The state of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunState {
    /// The run is complete.
    Complete,
    /// The run failed, with this reason.
    Failed(String),
    /// The run is in progress, or was killed.
    Incomplete,
}

impl StoredRun {
    /// Returns the run in a folder; `None` if it has none.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let strip_suffix = |state: &str| {
            // A variant's name may contain the name of a state.
            name.rsplit_once(&format!(".{state}"))
                .map(|it| it.0.to_owned())
        };
        let reason = path.join(FAILED_SUFFIX);
        let all = [RUN_FILE, SUMMARY_FILE, MANIFEST_FILE];
        let is_complete = all.iter().all(|file| path.join(file).is_file()) && !reason.exists();
        let (name, state) = if is_complete {
            (name.into_owned(), RunState::Complete)
        } else if let Some(name) = strip_suffix(FAILED_SUFFIX).filter(|_| reason.is_file()) {
            let reason = fs::read_to_string(&reason).map_err(Error::file(&reason))?;
            (name, RunState::Failed(reason.trim().to_owned()))
        } else if let Some(name) =
            strip_suffix(PARTIAL_SUFFIX).filter(|_| path.join(RUN_FILE).is_file())
        {
            (name, RunState::Incomplete)
        } else {
            return Ok(None);
        };
        let path = path.to_owned();
        Ok(Some(Self { name, path, state }))
    }

    /// Returns the text of the run's file.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn text(&self) -> Result<String, Error> {
        let path = self.path.join(RUN_FILE);
        fs::read_to_string(&path).map_err(Error::file(&path))
    }

    /// Returns the run's summary.
    ///
    /// # Errors
    ///
    /// [`Error::File`], also if the file is damaged.
    pub fn summary(&self) -> Result<Summary, Error> {
        self.json(SUMMARY_FILE)
    }

    /// Returns an error with the reason why the run cannot be read, and the remedy.
    pub(crate) fn damaged(&self, reason: Error) -> Error {
        Error::Damaged {
            run: self.path.clone(),
            reason: Box::new(reason),
        }
    }

    /// Returns the modification time of the run's folder.
    pub(super) fn modified_at(&self) -> Option<SystemTime> {
        fs::metadata(&self.path).and_then(|it| it.modified()).ok()
    }

    /// Reads a JSON file of the run.
    pub(crate) fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        let path = self.path.join(name);
        let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
        serde_json::from_str(&text).map_err(|error| Error::file(&path)(error.into()))
    }
}

/// The version and kernel that make a run. With another provenance, the same settings may give
/// other results.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Provenance {
    /// pillion's version.
    pub version: String,
    /// The hash of the lab kernel; `None` on other kernels.
    #[serde(default)]
    pub lab_kernel: Option<String>,
}

impl StoredRun {
    /// Returns the run's provenance.
    ///
    /// # Errors
    ///
    /// [`Error::File`], also if the file is damaged.
    pub fn provenance(&self) -> Result<Provenance, Error> {
        self.json(MANIFEST_FILE)
    }
}

impl StoredRun {
    /// Returns pillion's totals of each bundled group; empty without bundled groups.
    pub(crate) fn bundled(&self) -> Result<Vec<GroupBundlingTotals>, Error> {
        match self.path.join(BUNDLING_FILE).exists() {
            true => self.json(BUNDLING_FILE),
            false => Ok(Vec::new()),
        }
    }
}

/// The input for an analysis of a run's traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracePair {
    /// The trace at the senders.
    pub sender: PathBuf,
    /// The trace at the receiver, by the same clock.
    pub receiver: PathBuf,
    /// Each group's name and destination.
    pub groups: Vec<(String, SocketAddr)>,
}

/// The part of the manifest that is read here.
#[derive(Deserialize)]
struct ManifestTimes {
    begun_realtime_ns: i64,
    begun_ns: i64,
    barrier_ns: i64,
}

impl ManifestTimes {
    fn realtime_offset_ns(&self) -> i64 {
        self.begun_realtime_ns - self.begun_ns
    }
}

impl StoredRun {
    /// Returns when the run's streams started to send, in nanoseconds since 1970.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn sending_started_ns(&self) -> Result<i64, Error> {
        let times: ManifestTimes = self.json(MANIFEST_FILE)?;
        Ok(times.barrier_ns + times.realtime_offset_ns())
    }

    /// Returns the difference between `CLOCK_REALTIME` and the clock of the run's messages, in
    /// nanoseconds.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn realtime_offset_ns(&self) -> Result<i64, Error> {
        let times: ManifestTimes = self.json(MANIFEST_FILE)?;
        Ok(times.realtime_offset_ns())
    }

    /// Returns the run's traces; `None` unless it has both.
    ///
    /// # Errors
    ///
    /// [`Error::File`], also if a file is damaged.
    pub fn trace_pair(&self) -> Result<Option<TracePair>, Error> {
        let [sender, receiver] = [SENDER_TRACE, RECEIVER_TRACE].map(|name| self.path.join(name));
        if !sender.is_file() || !receiver.is_file() {
            return Ok(None);
        }
        Ok(Some(TracePair {
            sender,
            receiver,
            groups: self
                .streams()?
                .into_iter()
                .map(|it| (it.name, it.to))
                .collect(),
        }))
    }
}

/// The part of a group in the file of streams that is read here.
#[derive(Deserialize)]
pub(crate) struct GroupStreams {
    pub(crate) name: String,
    /// The senders' address, and the first stream's port; the following streams have the following
    /// ports.
    from: SocketAddr,
    pub(crate) to: SocketAddr,
    first_stream: u32,
    pub(crate) sent: SenderReport,
    pub(crate) received: ReceiverReport,
}

/// The senders' report.
#[derive(Deserialize)]
pub(crate) struct SenderReport {
    pub(crate) send_error_us: SendLateness,
    pub(crate) streams: Vec<SentStream>,
}

/// How late messages were passed to TCP, in microseconds.
#[derive(Deserialize)]
pub(crate) struct SendLateness {
    pub(crate) p99: f64,
}

#[derive(Deserialize)]
pub(crate) struct SentStream {
    pub(crate) stream: u32,
    messages: u64,
    error: Option<String>,
    completion_us: Option<f64>,
    retransmissions: Option<u64>,
    bytes_retrans: Option<u64>,
    bytes_sent: Option<u64>,
    pub(crate) bundling: Option<BundledStream>,
}

/// pillion's counters of a stream.
#[derive(Deserialize)]
pub(crate) struct BundledStream {
    pub(crate) hidden_losses: u64,
}

/// The receiver's report.
#[derive(Deserialize)]
pub(crate) struct ReceiverReport {
    pub(crate) streams: Vec<ReceivedStream>,
}

#[derive(Deserialize)]
pub(crate) struct ReceivedStream {
    stream: Option<u32>,
    messages: u64,
    bytes: u64,
    pub(crate) fault: Option<Value>,
}

impl StoredRun {
    /// Returns the reports of sender and receiver about each group and stream.
    pub(crate) fn streams(&self) -> Result<Vec<GroupStreams>, Error> {
        self.json(STREAMS_FILE)
    }
}

impl GroupStreams {
    /// Returns the source address and port of a stream, by its number.
    pub(crate) fn sender(&self, stream: u32) -> SocketAddr {
        let offset = u16::try_from(stream.saturating_sub(self.first_stream));
        let port = self.from.port().saturating_add(offset.unwrap_or(u16::MAX));
        SocketAddr::new(self.from.ip(), port)
    }

    /// Returns the totals of each stream, without single messages.
    pub(crate) fn stream_results(&self) -> Vec<Stream> {
        let received = self.received.streams.iter();
        let received = received.filter_map(|it| Some((it.stream?, it)));
        let received: HashMap<u32, &ReceivedStream> = received.collect();
        let sent = self.sent.streams.iter();
        let streams = sent.map(|it| Stream {
            totals: it.totals(received.get(&it.stream).copied()),
            delivery_ms: Vec::new(),
        });
        streams.collect()
    }
}

impl SentStream {
    fn totals(&self, received: Option<&ReceivedStream>) -> Totals {
        let reported = [self.retransmissions, self.bytes_retrans, self.bytes_sent];
        let has_tcp_info = reported.iter().all(Option::is_some);
        let [retransmissions, retransmitted_bytes, sent_bytes] =
            reported.map(Option::unwrap_or_default);
        Totals {
            streams: 1,
            failed_streams: u64::from(self.error.is_some()),
            sent_messages: self.messages,
            received_messages: received.map_or(0, |it| it.messages),
            received_bytes: received.map_or(0, |it| it.bytes),
            completed_flows: u64::from(self.completion_us.is_some()),
            completion_ms: self.completion_us.map_or(0.0, |it| it / 1e3),
            without_tcp_info: u64::from(!has_tcp_info),
            retransmissions,
            sent_bytes,
            retransmitted_bytes,
            ..Totals::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn trace_pair_has_group_names_and_ports() {
        let folder = tempfile::tempdir().unwrap();
        assert!(StoredRun::read(folder.path()).unwrap().is_none());
        for name in [RUN_FILE, SUMMARY_FILE, MANIFEST_FILE] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let run = StoredRun::read(folder.path()).unwrap().unwrap();
        assert_eq!(run.trace_pair().unwrap(), None);
        for name in [SENDER_TRACE, RECEIVER_TRACE] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert!(run.trace_pair().is_err(), "it has no file of streams");
        let streams = r#"[{"name": "thin", "host": "any", "from": "10.77.1.1:20000",
            "to": "10.77.2.1:7001", "first_stream": 0,
            "sent": {"send_error_us": {"p99": 1.0}, "streams": []}, "received": {"streams": []}}]"#;
        fs::write(folder.path().join(STREAMS_FILE), streams).unwrap();
        let groups = run.trace_pair().unwrap().unwrap().groups;
        assert_eq!(
            groups,
            [("thin".to_owned(), "10.77.2.1:7001".parse().unwrap())]
        );
        let manifest = r#"{"begun_realtime_ns": 1000, "begun_ns": 10, "barrier_ns": 30}"#;
        fs::write(folder.path().join(MANIFEST_FILE), manifest).unwrap();
        assert_eq!(run.sending_started_ns().unwrap(), 1020);
    }
}
