//! Measures of a queue, from its events.

mod account;
mod drops;
mod length;
mod period;
mod quantiles;
mod split;

use std::collections::HashMap;

use serde::Serialize;

pub use account::Account;
pub use drops::{Dispersion, Drops};
pub use length::LengthOverTime;
pub use period::Period;
pub use quantiles::Quantiles;

use crate::queue::{Endpoints, Event, Packet, Reasons};
use account::Tally;
use drops::Outcome;
use length::Lengths;
use split::Split;

/// What a queue did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Time from the first event to the last, in seconds.
    pub duration_s: f64,
    /// Packets, or ends of packets, that could not be noted.
    pub missed: u64,
    /// What became of all packets.
    pub all: Account,
    /// How long the queue was.
    pub length: LengthOverTime,
    /// How drops lie together.
    pub drops: Drops,
    /// What became of each stream by itself, in the order in which they were first seen to leave;
    /// what is no IP packet is left out.
    pub streams: Vec<Stream>,
}

/// What became of the packets of one direction of a connection.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stream {
    /// The ends of the connection, the sender's first.
    #[serde(flatten)]
    pub ends: Endpoints,
    /// What became of the stream's packets.
    #[serde(flatten)]
    pub account: Account,
}

/// Takes events and measures; keeps about 100 bytes of each packet.
#[derive(Debug, Default)]
pub struct Measures {
    missed: u64,
    span_ns: Option<(u64, u64)>,
    all: Tally,
    streams: Vec<(Endpoints, Tally)>,
    numbers: HashMap<Endpoints, usize>,
    lengths: Lengths,
    outcomes: Vec<Outcome>,
    split: Split,
}

/// The number of the stream of what is no IP packet.
const NONE: usize = usize::MAX;

impl Measures {
    /// Takes one event, in any order.
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Missed(number) => self.missed += number,
            Event::Packet(packet) if self.split.keep(packet) => {}
            Event::Packet(packet) => self.add_packet(packet),
        }
    }

    fn add_packet(&mut self, packet: &Packet) {
        for ns in [packet.arrived_ns, packet.left_ns].into_iter().flatten() {
            let (begin, end) = self.span_ns.unwrap_or((ns, ns));
            self.span_ns = Some((begin.min(ns), end.max(ns)));
        }
        self.all.add(packet);
        self.lengths.add(packet);
        let stream = packet.ends.map_or(NONE, |ends| {
            let next = self.streams.len();
            let number = *self.numbers.entry(ends).or_insert(next);
            if number == next {
                self.streams.push((ends, Tally::default()));
            }
            self.streams[number].1.add(packet);
            number
        });
        self.outcomes
            .extend(packet.arrived_ns.map(|arrived_ns| Outcome {
                arrived_ns,
                stream,
                dropped_ns: packet.left_ns.filter(|_| packet.is_dropped()),
            }));
    }

    /// The measures of all that was taken.
    #[must_use]
    pub fn finish(mut self, reasons: &Reasons) -> Summary {
        for packet in std::mem::take(&mut self.split).resolve() {
            self.add_packet(&packet);
        }
        let (begin, end) = self.span_ns.unwrap_or_default();
        let losses: Vec<_> = self
            .streams
            .iter()
            .map(|(_, tally)| tally.losses())
            .collect();
        let stream = |(ends, tally): (Endpoints, Tally)| Stream {
            ends,
            account: tally.close(reasons),
        };
        Summary {
            duration_s: (end - begin) as f64 / 1e9,
            missed: self.missed,
            all: self.all.close(reasons),
            length: self.lengths.close(),
            drops: drops::drops(self.outcomes, &losses),
            streams: self.streams.into_iter().map(stream).collect(),
        }
    }
}
