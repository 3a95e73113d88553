//! Results of an analysis as text and tables, for the terminal and for the report.

mod notes;
mod tables;

use pillion_stats::report::{Table, number};
use pillion_trace::ConnectionOutcome;
use pillion_trace::measure::{GroupResults, Results};

use crate::analysis::Trace;
pub(crate) use tables::value;

/// Results, and the parameters of their presentation.
pub struct Summary<'a> {
    /// The results of all connections and groups.
    pub results: &'a Results,
    /// The percentiles to show, from 0 to 100.
    pub percentiles: &'a [f64],
    /// The traces that were read; the sender's is first.
    pub traces: &'a [Trace],
}

impl Summary<'_> {
    /// Returns the heading, both tables and all notes as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.heading() + "\n\n";
        text += &self.counts().to_text();
        text += "\n";
        text += &self.times().to_text();
        for note in self.notes() {
            text += &format!("\nnote: {note}");
        }
        text + "\n"
    }

    /// Returns the traces' names, the number of connections and the duration, in one line.
    #[must_use]
    pub fn heading(&self) -> String {
        let names: Vec<&str> = self.traces.iter().map(Trace::file_name).collect();
        let connections = match self.results.connections.len() {
            1 => "1 connection".to_owned(),
            more => format!("{} connections", number::count(more as u64)),
        };
        let seconds = number::seconds(self.results.duration_s);
        format!("{}: {connections}, {seconds} s", names.join(" and "))
    }

    /// Describes the relation of the two clocks in a sentence; `None` with one trace.
    #[must_use]
    pub fn clocks(&self) -> Option<String> {
        let clock = self.results.clock.as_ref()?;
        let round_trip = clock.round_trip_ms?;
        let mut text = format!("shortest round trip {} ms", number::millis(round_trip));
        if clock.same {
            text += ", one clock for both traces";
        } else if let (Some(ahead), Some(drift)) = (clock.ahead_ms, clock.drift_ppm) {
            // Adding 0 removes the sign of a negative zero.
            let rounded = |value: f64, digits: f64| (value * digits).round() / digits + 0.0;
            let (ahead, drift) = (rounded(ahead, 1e3), rounded(drift, 10.0));
            let drifts = match clock.drift_uncertainty_ppm {
                Some(within) => {
                    let within = (within * 10.0).ceil() / 10.0;
                    format!(" and drifts by {drift} ppm, to within {within} ppm")
                }
                None => String::new(),
            };
            text += &format!(
                "; the receiver's clock is ahead by {ahead} ms{drifts}, if the shortest delay is \
                 the same both ways"
            );
        }
        Some(text)
    }

    /// Returns the table of connections, volume, loss and fairness. It has a column for all
    /// connections and one per group.
    #[must_use]
    pub fn counts(&self) -> Table {
        tables::counts_table(self)
    }

    /// Returns the table of distributions, by percentiles.
    #[must_use]
    pub fn times(&self) -> Table {
        tables::times_table(self)
    }

    /// Returns notes about the limits of the results, each a sentence.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        notes::notes(self)
    }

    /// Returns the results of all connections, and then those of each group.
    pub fn all_and_groups(&self) -> impl Iterator<Item = (&str, &GroupResults)> {
        let groups = self.results.groups.iter();
        let groups = groups.map(|group| (group.name.as_deref().unwrap_or_default(), group));
        std::iter::once(("all", &self.results.all)).chain(groups)
    }
}

/// Returns the label of a handshake's result.
#[must_use]
pub fn outcome(outcome: ConnectionOutcome) -> &'static str {
    match outcome {
        ConnectionOutcome::NotSeen => "not seen",
        ConnectionOutcome::Unanswered => "unanswered",
        ConnectionOutcome::Refused => "refused",
        ConnectionOutcome::Completed => "completed",
        ConnectionOutcome::Reset => "reset",
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use pillion_trace::measure::{Meter, MeterOptions, Results};
    use pillion_trace::{Flags, Packet, SackBlocks, pair};

    use super::*;

    const MS: i64 = 1_000_000;

    /// Messages from a client to these servers, each acknowledged 40 ms later.
    fn messages(servers: &[&str]) -> Vec<Packet> {
        let mut packets = Vec::new();
        for (stream, server) in (0..).zip(servers) {
            let client: SocketAddr = format!("192.0.2.1:{}", 40_000 + stream).parse().unwrap();
            let server: SocketAddr = server.parse().unwrap();
            for message in 0..20_u32 {
                let at_ns = i64::from(message) * 100 * MS;
                let data = Packet {
                    number: 0,
                    at_ns,
                    interface: 0,
                    from: client.into(),
                    to: server.into(),
                    frame_len: 166,
                    header_len: 52,
                    payload_len: 100,
                    seq: (stream + 1) * 100_000 + message * 100,
                    ack: Some(1),
                    flags: Flags::default(),
                    window: 500,
                    ip_id: None,
                    timestamps: None,
                    sack: SackBlocks::default(),
                    mss: None,
                    window_scale: None,
                };
                let ack = Packet {
                    at_ns: at_ns + 40 * MS,
                    from: data.to,
                    to: data.from,
                    frame_len: 66,
                    payload_len: 0,
                    seq: 1,
                    ack: Some(data.seq + 100),
                    ..data
                };
                packets.extend([data, ack]);
            }
        }
        packets
    }

    /// Analyses the client's trace of the connections `here` and the server's trace of those
    /// `there`.
    fn results_of_both(here: &[&str], there: &[&str]) -> Results {
        let [mut here, mut there] = [here, there].map(messages);
        for packet in &mut there {
            packet.at_ns += if packet.payload_len > 0 { 20 } else { -20 } * MS;
        }
        for packets in [&mut here, &mut there] {
            packets.sort_by_key(|packet| packet.at_ns);
            for (number, packet) in (1..).zip(packets) {
                packet.number = number;
            }
        }
        let meter = Meter::new(MeterOptions::default());
        let options = pair::PairOptions::default();
        let (meter, finding) = pair::analyse(here.into_iter(), there.into_iter(), &options, meter);
        meter.finish_pair(&finding.clock)
    }

    /// The receiver answers at once. Each fifth message was lost before the capture, and its
    /// retransmission comes 30 ms later.
    #[test]
    fn note_recognises_receivers_trace_without_handshake() {
        for lossy in [true, false] {
            let mut packets = messages(&["198.51.100.1:80"]);
            for (index, packet) in packets.iter_mut().enumerate() {
                // The data, its ACK, and the ACK of the next message.
                packet.at_ns += match index % 10 {
                    4 | 5 if lossy => 130 * MS,
                    7 if lossy => 31 * MS,
                    _ => 0,
                };
                packet.at_ns -= if index % 2 == 1 { 39 * MS } else { 0 };
            }
            packets.sort_by_key(|packet| packet.at_ns);
            let mut analysis = pillion_trace::Analysis::new(Meter::new(MeterOptions::default()));
            packets.iter().for_each(|packet| analysis.packet(packet));
            let results = analysis.finish().finish();
            let summary = Summary {
                results: &results,
                percentiles: &[50.0],
                traces: &[],
            };
            let is_it = |note: &String| note.contains("taken at the receiver");
            assert_eq!(summary.notes().iter().any(is_it), lossy);
        }
    }

    #[test]
    fn note_counts_connections_in_only_one_trace() {
        let (shown, others) = (["198.51.100.1:80"], ["203.0.113.1:80", "203.0.113.2:80"]);
        let all = [shown[0], others[0], others[1]];
        for (here, there, expected) in [
            (
                &all[..],
                &shown[..],
                Some("2 connections are only in the sender's trace"),
            ),
            (
                &all,
                &all[..2],
                Some("1 connection is only in the sender's trace"),
            ),
            (
                &all[..2],
                &all,
                Some("1 connection is only in the receiver's trace"),
            ),
            (&all, &all, None),
        ] {
            let results = results_of_both(here, there);
            let summary = Summary {
                results: &results,
                percentiles: &[50.0],
                traces: &[],
            };
            let notes = summary.notes();
            let single_trace_notes: Vec<_> = notes
                .iter()
                .filter(|note| note.contains(" only in "))
                .collect();
            assert_eq!(
                single_trace_notes.len(),
                usize::from(expected.is_some()),
                "{notes:?}"
            );
            assert!(
                single_trace_notes
                    .iter()
                    .all(|note| note.contains(expected.unwrap())),
                "{notes:?}"
            );
        }
    }
}
