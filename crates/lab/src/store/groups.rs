//! What a stored run's groups experienced.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use pillion_trace::Period;
use serde::Deserialize;

use super::StoredRun;
use super::stored_run::GroupStreams;
use crate::Error;
use crate::analysis::Traces;
use crate::analysis::runs::{Group, Repairs, Totals};
use crate::run::{RECORDS_FILE, RUN_FILE, WayCounts};
use crate::traffic::{Measured, Quantiles, Record};

/// What is needed of a run's file.
#[derive(Deserialize)]
struct RunFile {
    duration: f64,
}

impl StoredRun {
    /// What the run's groups experienced, without single messages.
    ///
    /// # Errors
    /// [`Error::File`], if it is not whole as well.
    pub fn groups(&self) -> Result<Vec<Group>, Error> {
        self.groups_of(&self.streams()?)
    }

    fn groups_of(&self, streams: &[GroupStreams]) -> Result<Vec<Group>, Error> {
        let summary = self.summary()?;
        let whole = self.whole(&summary.forward)?;
        let bundled = self.bundled()?;
        let groups = streams.iter().map(|group| {
            let told = summary.groups.iter().find(|it| it.name == group.name);
            let mut whole = whole;
            if let Some(bundled) = bundled.iter().find(|it| it.group == group.name) {
                let counters = &bundled.totals.counters;
                whole += Totals {
                    bundled_runs: 1,
                    bundled_bytes: counters.redundant_bytes,
                    hidden_losses: counters.hidden_losses,
                    reordered: counters.reordered,
                    reactions: counters.reactions,
                    ..Totals::default()
                };
            }
            Group {
                delivery_ms: told.and_then(|it| it.delivery_us).map_or([None; 6], in_ms),
                streams: group.experienced(),
                name: group.name.clone(),
                whole,
            }
        });
        Ok(groups.collect())
    }

    /// What the run's groups experienced, with every message, if the run kept records, and with
    /// what its traces, if it has them, show of the losses that bundles hid.
    ///
    /// # Errors
    /// [`Error::File`], if it is not whole as well.
    pub fn groups_with_messages(&self) -> Result<Vec<Group>, Error> {
        let streams = self.streams()?;
        let mut groups = self.groups_of(&streams)?;
        self.add_detection(&streams, &mut groups)?;
        let path = self.path.join(RECORDS_FILE);
        if !path.exists() {
            return Ok(groups);
        }
        let invalid = |error| Error::file(&path)(io::Error::other(error));
        let mut places = HashMap::new();
        for (group, streams) in streams.iter().enumerate() {
            for (place, stream) in streams.sent.streams.iter().enumerate() {
                places.insert(stream.stream, (group, place));
            }
        }
        for record in crate::records::read(&path).map_err(invalid)? {
            let record: Record = record.map_err(invalid)?;
            if record.measured == Measured::Delivery
                && let Some(&(group, place)) = places.get(&record.stream)
            {
                let stream = &mut groups[group].streams[place];
                stream.delivery_ms.push(record.latency_us / 1e3);
            }
        }
        Ok(groups)
    }

    /// What is known of the run as a whole.
    fn whole(&self, forward: &WayCounts) -> Result<Totals, Error> {
        let path = self.path.join(RUN_FILE);
        let text = self.text()?;
        let run: RunFile = toml::from_str(&text)
            .map_err(|error| Error::file(&path)(io::Error::other(one_line(&error, &text))))?;
        let queued = forward.queue_passed.map(|it| it + forward.queue_dropped);
        let packets = forward.trace_before.or(queued).or(forward.entered);
        Ok(Totals {
            runs: 1,
            seconds: run.duration,
            packets: packets.unwrap_or_default(),
            lost_packets: forward.queue_dropped + forward.lost,
            ..Totals::default()
        })
    }
}

/// What is wrong with a file in TOML, as it is said of those in JSON.
fn one_line(error: &toml::de::Error, text: &str) -> String {
    let before = error.span().map_or(0, |place| place.start);
    let line = text.bytes().take(before).filter(|byte| *byte == b'\n');
    format!("{} at line {}", error.message(), line.count() + 1)
}

fn in_ms(us: Quantiles) -> [Option<f64>; 6] {
    [us.p50, us.p90, us.p97, us.p99, us.p99_9, us.max].map(|us| Some(us / 1e3))
}

/// Whose a message is.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The name of its group.
    pub group: &'a str,
    /// Where its stream comes from.
    pub sender: SocketAddr,
}

impl StoredRun {
    /// Tells of each message that was delivered, with whose it is, stream by stream in the order
    /// of sending; of none where the run kept no records.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn messages(&self, mut tell: impl FnMut(&Origin<'_>, &Record)) -> Result<(), Error> {
        let path = self.path.join(RECORDS_FILE);
        if !path.exists() {
            return Ok(());
        }
        let groups = self.streams()?;
        let mut origins = HashMap::new();
        for group in &groups {
            let streams = group.sent.streams.iter();
            origins.extend(streams.map(|it| {
                let origin = Origin {
                    group: &group.name,
                    sender: group.sender(it.stream),
                };
                (it.stream, origin)
            }));
        }
        let invalid = |error| Error::file(&path)(io::Error::other(error));
        for record in crate::records::read(&path).map_err(invalid)? {
            let record: Record = record.map_err(invalid)?;
            if record.measured == Measured::Delivery
                && let Some(origin) = origins.get(&record.stream)
            {
                tell(origin, &record);
            }
        }
        Ok(())
    }
}

// What pillion found of the losses that its bundles hid, against what the traces show.

impl StoredRun {
    /// Adds that to each stream that was bundled, if the run has both traces.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Trace`].
    pub(super) fn add_detection(
        &self,
        files: &[GroupStreams],
        groups: &mut [Group],
    ) -> Result<(), Error> {
        let is_bundled = |group: &&mut Group| group.whole.bundled_runs > 0;
        let mut bundled: Vec<_> = files
            .iter()
            .zip(groups)
            .filter(|(_, group)| is_bundled(group))
            .collect();
        if bundled.is_empty() {
            return Ok(());
        }
        let Some(traced) = self.traced()? else {
            return Ok(());
        };
        let (sender, receiver) = (&traced.sender, Some(&*traced.receiver));
        let traces = Traces::open(sender, receiver, Vec::new(), Period::default(), true)?;
        let repairs = traces.observe(Repairs::default()).whole()?.observer;
        for (file, group) in &mut bundled {
            group.whole.traced_runs = 1;
            let numbers = file.sent.streams.iter();
            for (sent, stream) in numbers.zip(&mut group.streams) {
                let found = sent.bundling.as_ref().map_or(0, |it| it.hidden_losses);
                stream.totals += Totals::detection(found, repairs.of(file.sender(sent.stream)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::State;
    use super::*;
    use crate::analysis::runs::MEASURES;
    use crate::records::Writer;
    use crate::run::{BUNDLING_FILE, STREAMS_FILE, SUMMARY_FILE};
    use crate::store::Origin;

    const SUMMARY: &str = r#"{"groups": [], "doubts": [],
        "forward": {"queue_dropped": 3, "queue_passed": 97, "lost": 2, "delivered": 95},
        "backward": {"queue_dropped": 0, "lost": 0, "delivered": 90}}"#;
    const STREAMS: &str = r#"[{"name": "thin", "from": "10.77.1.1:20005",
        "to": "10.77.2.1:7000", "first_stream": 5, "sent": {"send_error_us": {"p99": 1.0}, "streams": [
            {"stream": 5, "messages": 10, "retransmissions": 1, "bytes_retrans": 100,
             "bytes_sent": 1000, "completion_us": 400500},
            {"stream": 6, "messages": 10, "retransmissions": 2, "bytes_retrans": 100,
             "bytes_sent": 1000, "error": "timed out"}]},
        "received": {"streams": [{"stream": 6, "messages": 8, "bytes": 800},
            {"stream": 5, "messages": 9, "bytes": 900}]}}]"#;
    const BUNDLING: &str = r#"[{"group": "thin", "redundant_bytes": 2000, "hidden_losses": 7,
        "reordered": 2, "reactions": 4}]"#;

    fn run(folder: &tempfile::TempDir) -> StoredRun {
        for (name, text) in [
            (RUN_FILE, "duration = 2\nseed = 1\n"),
            (SUMMARY_FILE, SUMMARY),
            (STREAMS_FILE, STREAMS),
            (BUNDLING_FILE, BUNDLING),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        StoredRun {
            name: "plain,seed=1".to_owned(),
            path: folder.path().to_owned(),
            state: State::Whole,
        }
    }

    #[test]
    fn a_groups_measures_come_from_the_runs_files() {
        let folder = tempfile::tempdir().unwrap();
        let groups = run(&folder).groups().unwrap();
        let value = |name: &str| {
            let measure = MEASURES.iter().find(|it| it.name == name).unwrap();
            groups[0].value(measure)
        };
        assert_eq!(value("retransmissions"), Some(3.0));
        assert_eq!(value("loss_share"), Some(0.05));
        assert_eq!(value("goodput_bit_per_s"), Some(6800.0));
        assert_eq!(value("redundant_share"), Some(2200.0 / 4000.0));
        assert_eq!(value("hidden_losses"), Some(7.0));
        assert_eq!(value("reordered"), Some(2.0));
        assert_eq!(value("reactions"), Some(4.0));
        assert_eq!(value("delivery_p50_ms"), None);
        assert_eq!(value("missing_share"), Some(0.15));
        assert_eq!(value("failed_streams"), Some(1.0));
        assert_eq!(value("completion_ms"), Some(400.5));
    }

    #[test]
    fn a_run_of_an_older_version_has_no_late_segments() {
        let folder = tempfile::tempdir().unwrap();
        let run = run(&folder);
        let older = BUNDLING.replace("\"reordered\": 2, ", "");
        assert_ne!(older, BUNDLING);
        fs::write(folder.path().join(BUNDLING_FILE), older).unwrap();
        assert_eq!(run.groups().unwrap()[0].totals().reordered, 0);
    }

    #[test]
    fn messages_go_to_their_streams() {
        let folder = tempfile::tempdir().unwrap();
        let record = |stream, measured, latency_us| Record {
            measured,
            stream,
            sequence: 0,
            size: 100,
            sent_ns: 1,
            latency_us,
        };
        let records = [
            record(6, Measured::Delivery, 75_000.0),
            record(6, Measured::RoundTrip, 150_000.0),
            record(9, Measured::Delivery, 1.0),
        ];
        let mut file = Writer::create(&folder.path().join(RECORDS_FILE)).unwrap();
        file.write(records).unwrap();
        file.finish().unwrap();
        let groups = run(&folder).groups_with_messages().unwrap();
        let latencies = groups[0].streams.iter().map(|it| &it.delivery_ms[..]);
        assert!(latencies.eq([&[][..], &[75.0][..]]));
        let mut told = Vec::new();
        let tell = |origin: &Origin<'_>, record: &Record| {
            told.push((origin.group.to_owned(), origin.sender, record.stream));
        };
        run(&folder).messages(tell).unwrap();
        let sender = ([10, 77, 1, 1], 20006).into();
        assert_eq!(told, [("thin".to_owned(), sender, 6)]);
    }

    #[test]
    fn a_file_that_is_not_what_it_should_be_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let run = run(&folder);
        for (name, text) in [
            (RUN_FILE, "duration = \"long\""),
            (STREAMS_FILE, "[{}]"),
            (BUNDLING_FILE, "{"),
            (RECORDS_FILE, "none"),
        ] {
            let path = folder.path().join(name);
            let before = fs::read(&path).ok();
            fs::write(&path, text).unwrap();
            let error = run.groups_with_messages().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
            match before {
                Some(before) => fs::write(&path, before).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
        }
    }
}
