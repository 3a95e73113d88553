//! A run in a store, and what its files hold.

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
    BROKEN, BUNDLING_FILE, GroupBundled, MANIFEST_FILE, PART, RECEIVER_TRACE, RUN_FILE,
    SENDER_TRACE, STREAMS_FILE, SUMMARY_FILE, Summary,
};

/// A run in a store.
#[derive(Debug, Clone)]
pub struct StoredRun {
    /// The run's name, as in `plain,loss=2,seed=1`.
    pub name: String,
    /// The run's folder.
    pub path: PathBuf,
    /// Whether the run is whole.
    pub state: State,
}

/// Whether a run can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The run is whole, and can be used.
    Whole,
    /// The run failed, for this reason.
    Broken(String),
    /// The run is being made, or was killed.
    Part,
}

impl StoredRun {
    /// The run that is in a folder, if there is one.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = |state: &str| {
            // A variant may be called like a state.
            name.rsplit_once(&format!(".{state}"))
                .map(|it| it.0.to_owned())
        };
        let reason = path.join(BROKEN);
        let all = [RUN_FILE, SUMMARY_FILE, MANIFEST_FILE];
        let is_whole = all.iter().all(|file| path.join(file).is_file()) && !reason.exists();
        let (name, state) = if is_whole {
            (name.into_owned(), State::Whole)
        } else if let Some(name) = unfinished(BROKEN).filter(|_| reason.is_file()) {
            let why = fs::read_to_string(&reason).map_err(Error::file(&reason))?;
            (name, State::Broken(why.trim().to_owned()))
        } else if let Some(name) = unfinished(PART).filter(|_| path.join(RUN_FILE).is_file()) {
            (name, State::Part)
        } else {
            return Ok(None);
        };
        let path = path.to_owned();
        Ok(Some(Self { name, path, state }))
    }

    /// The run's file, as it was run.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn text(&self) -> Result<String, Error> {
        let path = self.path.join(RUN_FILE);
        fs::read_to_string(&path).map_err(Error::file(&path))
    }

    /// The run's summary.
    ///
    /// # Errors
    /// [`Error::File`], if it is not whole as well.
    pub fn summary(&self) -> Result<Summary, Error> {
        self.json(SUMMARY_FILE)
    }

    /// What keeps the run from being read, with what to do.
    pub(crate) fn damaged(&self, why: Error) -> Error {
        Error::Damaged {
            run: self.path.clone(),
            why: Box::new(why),
        }
    }

    /// When the run was made, as far as its folder tells.
    pub(super) fn made_at(&self) -> Option<SystemTime> {
        fs::metadata(&self.path).and_then(|it| it.modified()).ok()
    }

    /// What a file of the run says.
    pub(crate) fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        let path = self.path.join(name);
        let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
        serde_json::from_str(&text).map_err(|error| Error::file(&path)(error.into()))
    }
}

/// What made a run, or is to make one. What two of them make of one run's file may differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Maker {
    /// pillion's version.
    pub version: String,
    /// What identifies the lab kernel; `None` of others.
    #[serde(default)]
    pub lab_kernel: Option<String>,
}

impl StoredRun {
    /// What made the run.
    ///
    /// # Errors
    /// [`Error::File`], if it is not whole as well.
    pub fn maker(&self) -> Result<Maker, Error> {
        self.json(MANIFEST_FILE)
    }
}

impl StoredRun {
    /// What pillion did for each group that it bundled; for none where it bundled none.
    pub(crate) fn bundled(&self) -> Result<Vec<GroupBundled>, Error> {
        match self.path.join(BUNDLING_FILE).exists() {
            true => self.json(BUNDLING_FILE),
            false => Ok(Vec::new()),
        }
    }
}

/// What an analysis of a run's traces needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// The trace at the senders.
    pub sender: PathBuf,
    /// The one at the receiver, by the same clock.
    pub receiver: PathBuf,
    /// Each group's name, and where its streams go.
    pub groups: Vec<(String, SocketAddr)>,
}

/// What is needed of the manifest.
#[derive(Deserialize)]
struct Times {
    begun_realtime_ns: i64,
    begun_ns: i64,
    barrier_ns: i64,
}

impl Times {
    fn realtime_ahead_ns(&self) -> i64 {
        self.begun_realtime_ns - self.begun_ns
    }
}

impl StoredRun {
    /// When its streams began to send, in nanoseconds since 1970.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn sending_began_ns(&self) -> Result<i64, Error> {
        let times: Times = self.json(MANIFEST_FILE)?;
        Ok(times.barrier_ns + times.realtime_ahead_ns())
    }

    /// By how much the time since 1970 was ahead of the clock of the run's messages, in
    /// nanoseconds.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn realtime_ahead_ns(&self) -> Result<i64, Error> {
        let times: Times = self.json(MANIFEST_FILE)?;
        Ok(times.realtime_ahead_ns())
    }

    /// The run's traces, if it has both.
    ///
    /// # Errors
    /// [`Error::File`], if it is not whole as well.
    pub fn traced(&self) -> Result<Option<Traced>, Error> {
        let [sender, receiver] = [SENDER_TRACE, RECEIVER_TRACE].map(|name| self.path.join(name));
        if !sender.is_file() || !receiver.is_file() {
            return Ok(None);
        }
        Ok(Some(Traced {
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

/// What is read of a group in the file of streams.
#[derive(Deserialize)]
pub(crate) struct GroupStreams {
    pub(crate) name: String,
    /// The senders' address, and the first stream's port; each next stream has the next.
    from: SocketAddr,
    pub(crate) to: SocketAddr,
    first_stream: u32,
    pub(crate) sent: Sent,
    pub(crate) received: Received,
}

/// What the senders report.
#[derive(Deserialize)]
pub(crate) struct Sent {
    pub(crate) send_error_us: SendError,
    pub(crate) streams: Vec<StreamSent>,
}

/// By how much messages were handed over late, in microseconds.
#[derive(Deserialize)]
pub(crate) struct SendError {
    pub(crate) p99: f64,
}

#[derive(Deserialize)]
pub(crate) struct StreamSent {
    pub(crate) stream: u32,
    messages: u64,
    error: Option<String>,
    completion_us: Option<f64>,
    retransmissions: Option<u64>,
    bytes_retrans: Option<u64>,
    bytes_sent: Option<u64>,
    pub(crate) bundling: Option<StreamBundled>,
}

/// What pillion itself says of a stream.
#[derive(Deserialize)]
pub(crate) struct StreamBundled {
    pub(crate) hidden_losses: u64,
}

/// What the receiver reports.
#[derive(Deserialize)]
pub(crate) struct Received {
    pub(crate) streams: Vec<StreamReceived>,
}

#[derive(Deserialize)]
pub(crate) struct StreamReceived {
    stream: Option<u32>,
    messages: u64,
    bytes: u64,
    pub(crate) fault: Option<Value>,
}

impl StoredRun {
    /// What sender and receiver report of each group and each stream.
    pub(crate) fn streams(&self) -> Result<Vec<GroupStreams>, Error> {
        self.json(STREAMS_FILE)
    }
}

impl GroupStreams {
    /// Where a stream comes from, by its number.
    pub(crate) fn sender(&self, stream: u32) -> SocketAddr {
        let behind = u16::try_from(stream.saturating_sub(self.first_stream));
        let port = self.from.port().saturating_add(behind.unwrap_or(u16::MAX));
        SocketAddr::new(self.from.ip(), port)
    }

    /// What each stream experienced, without single messages.
    pub(crate) fn experienced(&self) -> Vec<Stream> {
        let received = self.received.streams.iter();
        let received = received.filter_map(|it| Some((it.stream?, it)));
        let received: HashMap<u32, &StreamReceived> = received.collect();
        let sent = self.sent.streams.iter();
        let streams = sent.map(|it| Stream {
            totals: it.totals(received.get(&it.stream).copied()),
            delivery_ms: Vec::new(),
        });
        streams.collect()
    }
}

impl StreamSent {
    fn totals(&self, received: Option<&StreamReceived>) -> Totals {
        let told = [self.retransmissions, self.bytes_retrans, self.bytes_sent];
        let is_told = told.iter().all(Option::is_some);
        let [retransmissions, retransmitted_bytes, sent_bytes] =
            told.map(Option::unwrap_or_default);
        Totals {
            streams: 1,
            failed_streams: u64::from(self.error.is_some()),
            sent_messages: self.messages,
            received_messages: received.map_or(0, |it| it.messages),
            received_bytes: received.map_or(0, |it| it.bytes),
            completed_flows: u64::from(self.completion_us.is_some()),
            completion_ms: self.completion_us.map_or(0.0, |it| it / 1e3),
            untold: u64::from(!is_told),
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
    fn a_runs_traces_come_with_the_names_and_ports_of_its_groups() {
        let folder = tempfile::tempdir().unwrap();
        assert!(StoredRun::read(folder.path()).unwrap().is_none());
        for name in [RUN_FILE, SUMMARY_FILE, MANIFEST_FILE] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let run = StoredRun::read(folder.path()).unwrap().unwrap();
        assert_eq!(run.traced().unwrap(), None);
        for name in [SENDER_TRACE, RECEIVER_TRACE] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert!(run.traced().is_err(), "it has no file of streams");
        let streams = r#"[{"name": "thin", "host": "any", "from": "10.77.1.1:20000",
            "to": "10.77.2.1:7001", "first_stream": 0,
            "sent": {"send_error_us": {"p99": 1.0}, "streams": []}, "received": {"streams": []}}]"#;
        fs::write(folder.path().join(STREAMS_FILE), streams).unwrap();
        let groups = run.traced().unwrap().unwrap().groups;
        assert_eq!(
            groups,
            [("thin".to_owned(), "10.77.2.1:7001".parse().unwrap())]
        );
        let manifest = r#"{"begun_realtime_ns": 1000, "begun_ns": 10, "barrier_ns": 30}"#;
        fs::write(folder.path().join(MANIFEST_FILE), manifest).unwrap();
        assert_eq!(run.sending_began_ns().unwrap(), 1020);
    }
}
