use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::StoredRun;
use crate::Error;
use crate::run::{MANIFEST_FILE, RECEIVER_TRACE, SENDER_TRACE};

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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::run::{RUN_FILE, STREAMS_FILE, SUMMARY_FILE};

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
