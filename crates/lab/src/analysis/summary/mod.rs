//! What was measured, for people: text and tables that the report shows as well.

mod notes;
mod tables;

use pillion_stats::report::{Table, number};
use pillion_trace::Outcome;
use pillion_trace::measure::{Results, Together};

use crate::analysis::Trace;
pub(crate) use tables::value;

/// Results, and what it takes to tell of them.
pub struct Summary<'a> {
    /// What was measured.
    pub results: &'a Results,
    /// The percentiles that are shown, from 0 to 100.
    pub percentiles: &'a [f64],
    /// What was read; sender first.
    pub traces: &'a [Trace],
}

impl Summary<'_> {
    /// All of it.
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

    /// The traces' names and what they hold, in a line.
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

    /// How the clocks of two traces relate, in a sentence.
    #[must_use]
    pub fn clocks(&self) -> Option<String> {
        let clock = self.results.clock.as_ref()?;
        let round_trip = clock.round_trip_ms?;
        let mut text = format!("shortest round trip {} ms", number::millis(round_trip));
        if clock.same {
            text += ", one clock for both traces";
        } else if let (Some(ahead), Some(drift)) = (clock.ahead_ms, clock.drift_ppm) {
            // Rounded to nothing, a negative number keeps its sign unless 0 is added.
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

    /// Connections, volume, loss, fairness, one column for all and one for each group.
    #[must_use]
    pub fn counts(&self) -> Table {
        tables::counts_table(self)
    }

    /// Distributions by percentiles.
    #[must_use]
    pub fn times(&self) -> Table {
        tables::times_table(self)
    }

    /// What one has to know of the traces to take the results right.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        notes::notes(self)
    }

    /// All connections, then each group.
    pub fn together(&self) -> impl Iterator<Item = (&str, &Together)> {
        let groups = self.results.groups.iter();
        let groups = groups.map(|group| (group.name.as_deref().unwrap_or_default(), group));
        std::iter::once(("all", &self.results.all)).chain(groups)
    }
}

/// What became of an attempt to connect, in words.
#[must_use]
pub fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::NotSeen => "not seen",
        Outcome::Unanswered => "unanswered",
        Outcome::Refused => "refused",
        Outcome::Completed => "completed",
        Outcome::Reset => "reset",
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use pillion_trace::measure::{Meter, Options, Results};
    use pillion_trace::{Flags, Packet, SackBlocks, pair};

    use super::*;

    const MS: i64 = 1_000_000;

    /// Of a client, messages to these servers, each acknowledged 40 ms later.
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

    /// The client's trace of these servers' connections and that of the others'.
    fn of_both(here: &[&str], there: &[&str]) -> Results {
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
        let meter = Meter::new(Options::default());
        let options = pair::Options::default();
        let (meter, finding) = pair::analyse(here.into_iter(), there.into_iter(), &options, meter);
        meter.finish_pair(&finding.clock)
    }

    #[test]
    fn a_note_says_how_many_connections_one_trace_shows_alone() {
        let (shown, others) = (["198.51.100.1:80"], ["203.0.113.1:80", "203.0.113.2:80"]);
        let all = [shown[0], others[0], others[1]];
        for (here, there, expected) in [
            (
                &all[..],
                &shown[..],
                Some("2 connections are in the sender's trace alone"),
            ),
            (
                &all,
                &all[..2],
                Some("1 connection is in the sender's trace alone"),
            ),
            (
                &all[..2],
                &all,
                Some("1 connection is in the receiver's trace alone"),
            ),
            (&all, &all, None),
        ] {
            let results = of_both(here, there);
            let summary = Summary {
                results: &results,
                percentiles: &[50.0],
                traces: &[],
            };
            let notes = summary.notes();
            let alone: Vec<_> = notes.iter().filter(|note| note.contains("alone")).collect();
            assert_eq!(alone.len(), usize::from(expected.is_some()), "{notes:?}");
            assert!(
                alone.iter().all(|note| note.contains(expected.unwrap())),
                "{notes:?}"
            );
        }
    }
}
