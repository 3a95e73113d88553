//! Measures of a queue, from its events.

mod drops;
mod length;

use std::collections::{BTreeMap, HashMap};

use pillion_stats::measure::share;
use serde::Serialize;

use crate::queue::{Endpoints, Event, Fate, Packet, Reasons};
use drops::{Outcome, Split};
use length::Lengths;

pub use drops::{Dispersion, Drops};
pub use length::{LengthOverTime, Period, Quantiles};

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

/// What became of the packets of a stream, or of all streams.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Account {
    /// Packets that were offered to the queue.
    pub offered: u64,
    /// Of the packets offered, those that the queue sent.
    pub sent: u64,
    /// Of the packets offered, those that were dropped as they arrived.
    pub refused: u64,
    /// Of the packets offered, those that were dropped from the queue.
    pub dropped: u64,
    /// Of the packets offered, those whose end was not seen: still in the queue at the end, most
    /// likely.
    pub unseen: u64,
    /// Packets sent whose arrival was not seen; they are not among those offered.
    pub unannounced: u64,
    /// Segments sent: more than packets, where there is segmentation offload.
    sent_segments: u64,
    /// Bytes sent, as the queueing disciplines count them.
    pub sent_bytes: u64,
    /// Packets dropped, by the kernel's reason.
    pub reasons: BTreeMap<String, u64>,
    /// How long packets that were sent waited in the queue, in milliseconds.
    pub delay_ms: Quantiles,
}

impl Account {
    /// The share of the packets offered that was dropped, 0 to 1; `None` if none was offered.
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        share(self.refused + self.dropped, self.offered)
    }
}

/// An account that is being drawn up.
#[derive(Debug, Default)]
struct Tally {
    fates: [u64; Fate::ALL.len()],
    unannounced: u64,
    sent_segments: u64,
    sent_bytes: u64,
    reasons: BTreeMap<u32, u64>,
    delays: Vec<u64>,
}

impl Tally {
    fn add(&mut self, packet: &Packet) {
        if packet.fate == Fate::Sent {
            self.sent_segments += u64::from(packet.segments);
            self.sent_bytes += u64::from(packet.counted);
        }
        if packet.arrived_ns.is_none() {
            self.unannounced += 1;
            return;
        }
        self.fates[packet.fate as usize] += 1;
        self.delays.extend(packet.delay_ns());
        if packet.is_dropped() {
            *self.reasons.entry(packet.reason).or_default() += 1;
        }
    }

    /// Packets offered, and how many of them were dropped.
    fn losses(&self) -> (u64, u64) {
        let of = |fate| self.fates[fate as usize];
        (
            self.fates.iter().sum(),
            of(Fate::Refused) + of(Fate::Dropped),
        )
    }

    fn close(self, reasons: &Reasons) -> Account {
        let of = |fate| self.fates[fate as usize];
        let named = self.reasons.iter();
        Account {
            offered: self.fates.iter().sum(),
            sent: of(Fate::Sent),
            refused: of(Fate::Refused),
            dropped: of(Fate::Dropped),
            unseen: of(Fate::Unseen) + of(Fate::Replaced),
            unannounced: self.unannounced,
            sent_segments: self.sent_segments,
            sent_bytes: self.sent_bytes,
            reasons: named
                .map(|(reason, count)| (reasons.name(*reason), *count))
                .collect(),
            delay_ms: Quantiles::of(self.delays, 1e6),
        }
    }
}
