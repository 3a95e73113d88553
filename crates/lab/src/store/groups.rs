//! The groups of a stored run, with their streams and messages.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use pillion_trace::Period;
use serde::Deserialize;

use super::StoredRun;
use super::stored_run::GroupStreams;
use crate::Error;
use crate::analysis::Traces;
use crate::analysis::runs::{Group, RepairCounter, Totals};
use crate::run::{PathCounts, RECORDS_FILE, RUN_FILE};
use crate::traffic::{LatencyKind, Quantiles, Record};

/// The part of a run's file that is read here.
#[derive(Deserialize)]
struct RunFile {
    duration: f64,
}

impl StoredRun {
    /// Returns the run's groups, without single messages.
    ///
    /// # Errors
    ///
    /// [`Error::File`], also if a file is damaged.
    pub fn groups(&self) -> Result<Vec<Group>, Error> {
        self.groups_of(&self.streams()?)
    }

    fn groups_of(&self, streams: &[GroupStreams]) -> Result<Vec<Group>, Error> {
        let summary = self.summary()?;
        let run_totals = self.run_totals(&summary.forward)?;
        let bundled = self.bundled()?;
        let groups = streams.iter().map(|group| {
            let reported = summary.groups.iter().find(|it| it.name == group.name);
            let mut run_totals = run_totals;
            if let Some(bundled) = bundled.iter().find(|it| it.group == group.name) {
                let counters = &bundled.totals.counters;
                run_totals += Totals {
                    bundled_runs: 1,
                    bundled_bytes: counters.redundant_bytes,
                    hidden_losses: counters.hidden_losses,
                    reordered: counters.reordered,
                    reactions: counters.reactions,
                    ..Totals::default()
                };
            }
            Group {
                delivery_ms: reported
                    .and_then(|it| it.delivery_us)
                    .map_or([None; 6], in_ms),
                streams: group.stream_results(),
                name: group.name.clone(),
                run_totals,
            }
        });
        Ok(groups.collect())
    }

    /// Returns the run's groups. They include every message if the run has records, and the
    /// repaired losses if it has traces.
    ///
    /// # Errors
    ///
    /// [`Error::File`], also if a file is damaged.
    pub fn groups_with_messages(&self) -> Result<Vec<Group>, Error> {
        let streams = self.streams()?;
        let mut groups = self.groups_of(&streams)?;
        self.add_loss_detection(&streams, &mut groups)?;
        let path = self.path.join(RECORDS_FILE);
        if !path.exists() {
            return Ok(groups);
        }
        let invalid = |error| Error::file(&path)(io::Error::other(error));
        let mut indices = HashMap::new();
        for (group, streams) in streams.iter().enumerate() {
            for (index, stream) in streams.sent.streams.iter().enumerate() {
                indices.insert(stream.stream, (group, index));
            }
        }
        for record in crate::records::read(&path).map_err(invalid)? {
            let record: Record = record.map_err(invalid)?;
            if record.measured == LatencyKind::Delivery
                && let Some(&(group, index)) = indices.get(&record.stream)
            {
                let stream = &mut groups[group].streams[index];
                stream.delivery_ms.push(record.latency_us / 1e3);
            }
        }
        Ok(groups)
    }

    /// Returns the totals that are known only for the whole run.
    fn run_totals(&self, forward: &PathCounts) -> Result<Totals, Error> {
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

/// Formats a TOML error in one line, like a JSON error.
fn one_line(error: &toml::de::Error, text: &str) -> String {
    let before = error.span().map_or(0, |index| index.start);
    let line = text.bytes().take(before).filter(|byte| *byte == b'\n');
    format!("{} at line {}", error.message(), line.count() + 1)
}

fn in_ms(us: Quantiles) -> [Option<f64>; 6] {
    [us.p50, us.p90, us.p97, us.p99, us.p99_9, us.max].map(|us| Some(us / 1e3))
}

/// The group and the sender of a message.
#[derive(Debug, Clone, Copy)]
pub struct MessageSource<'a> {
    /// The name of the group.
    pub group: &'a str,
    /// The sender's address and port.
    pub sender: SocketAddr,
}

impl StoredRun {
    /// Calls `on_message` for each delivered message with its source, stream by stream in order of
    /// sending. Without records, it is never called.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn messages(
        &self,
        mut on_message: impl FnMut(&MessageSource<'_>, &Record),
    ) -> Result<(), Error> {
        let path = self.path.join(RECORDS_FILE);
        if !path.exists() {
            return Ok(());
        }
        let groups = self.streams()?;
        let mut sources = HashMap::new();
        for group in &groups {
            let streams = group.sent.streams.iter();
            sources.extend(streams.map(|it| {
                let source = MessageSource {
                    group: &group.name,
                    sender: group.sender(it.stream),
                };
                (it.stream, source)
            }));
        }
        let invalid = |error| Error::file(&path)(io::Error::other(error));
        for record in crate::records::read(&path).map_err(invalid)? {
            let record: Record = record.map_err(invalid)?;
            if record.measured == LatencyKind::Delivery
                && let Some(source) = sources.get(&record.stream)
            {
                on_message(source, &record);
            }
        }
        Ok(())
    }
}

// pillion's hidden losses, compared with the losses in the traces.

impl StoredRun {
    /// Adds that comparison to each bundled stream, if the run has both traces.
    ///
    /// # Errors
    ///
    /// [`Error::File`], [`Error::Trace`].
    pub(super) fn add_loss_detection(
        &self,
        files: &[GroupStreams],
        groups: &mut [Group],
    ) -> Result<(), Error> {
        let is_bundled = |group: &&mut Group| group.run_totals.bundled_runs > 0;
        let mut bundled: Vec<_> = files
            .iter()
            .zip(groups)
            .filter(|(_, group)| is_bundled(group))
            .collect();
        if bundled.is_empty() {
            return Ok(());
        }
        let Some(trace_pair) = self.trace_pair()? else {
            return Ok(());
        };
        let files = [trace_pair.sender, trace_pair.receiver];
        let (sender, receiver) = files.split_at(1);
        let traces = Traces::open(sender, receiver, Vec::new(), Period::default(), true)?;
        let repairs = traces
            .observe(RepairCounter::default())
            .require_undamaged()?
            .observer;
        for (file, group) in &mut bundled {
            group.run_totals.traced_runs = 1;
            let numbers = file.sent.streams.iter();
            for (sent, stream) in numbers.zip(&mut group.streams) {
                let counted = sent.bundling.as_ref().map_or(0, |it| it.hidden_losses);
                stream.totals +=
                    Totals::loss_detection(counted, repairs.count_from(file.sender(sent.stream)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::RunState;
    use super::*;
    use crate::analysis::runs::MEASURES;
    use crate::records::Writer;
    use crate::run::{BUNDLING_FILE, STREAMS_FILE, SUMMARY_FILE};
    use crate::store::MessageSource;

    const SUMMARY: &str = r#"{"groups": [], "warnings": [],
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
            state: RunState::Complete,
        }
    }

    #[test]
    fn group_measures_come_from_run_files() {
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
    fn missing_reordered_field_counts_as_zero() {
        let folder = tempfile::tempdir().unwrap();
        let run = run(&folder);
        let older = BUNDLING.replace("\"reordered\": 2, ", "");
        assert_ne!(older, BUNDLING);
        fs::write(folder.path().join(BUNDLING_FILE), older).unwrap();
        assert_eq!(run.groups().unwrap()[0].totals().reordered, 0);
    }

    #[test]
    fn messages_are_assigned_to_their_streams() {
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
            record(6, LatencyKind::Delivery, 75_000.0),
            record(6, LatencyKind::RoundTrip, 150_000.0),
            record(9, LatencyKind::Delivery, 1.0),
        ];
        let mut file = Writer::create(&folder.path().join(RECORDS_FILE)).unwrap();
        file.write(records).unwrap();
        file.finish().unwrap();
        let groups = run(&folder).groups_with_messages().unwrap();
        let latencies = groups[0].streams.iter().map(|it| &it.delivery_ms[..]);
        assert!(latencies.eq([&[][..], &[75.0][..]]));
        let mut reported = Vec::new();
        let on_message = |source: &MessageSource<'_>, record: &Record| {
            reported.push((source.group.to_owned(), source.sender, record.stream));
        };
        run(&folder).messages(on_message).unwrap();
        let sender = ([10, 77, 1, 1], 20006).into();
        assert_eq!(reported, [("thin".to_owned(), sender, 6)]);
    }

    #[test]
    fn invalid_file_error_names_file() {
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
