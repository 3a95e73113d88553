//! Measures of a queue, computed from its events.

mod drops;
mod length;

use std::collections::{BTreeMap, HashMap};

use pillion_stats::measure::share;
use serde::Serialize;

use crate::queue::{Disposition, Endpoints, Event, Packet, Reasons};
use drops::{ArrivedPacket, SplitPackets};
use length::LengthTracker;

pub use drops::{Dispersion, Drops};
pub use length::{LengthOverTime, Period, Quantiles};

/// Measures of a recorded queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Time from the first event to the last, in seconds.
    pub duration_s: f64,
    /// Packets, or ends of packets, that could not be recorded.
    pub missed: u64,
    /// Counts of all packets.
    pub all: QueueCounts,
    /// Queue length.
    pub length: LengthOverTime,
    /// Clustering of drops.
    pub drops: Drops,
    /// Counts of each stream, in the order of the streams' first departures; without other
    /// protocols than IP.
    pub streams: Vec<Stream>,
}

/// Counts of one direction of a connection.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stream {
    /// The connection's endpoints, the sender's first.
    #[serde(flatten)]
    pub ends: Endpoints,
    /// Counts of the stream's packets.
    #[serde(flatten)]
    pub account: QueueCounts,
}

/// Collects events and computes measures; needs about 100 bytes per packet.
#[derive(Debug, Default)]
pub struct QueueMeter {
    missed: u64,
    span_ns: Option<(u64, u64)>,
    all: CountsBuilder,
    streams: Vec<(Endpoints, CountsBuilder)>,
    numbers: HashMap<Endpoints, usize>,
    lengths: LengthTracker,
    arrivals: Vec<ArrivedPacket>,
    split: SplitPackets,
}

/// Stream number of packets that are not IP.
const NO_STREAM: usize = usize::MAX;

impl QueueMeter {
    /// Adds one event; events may come in any order.
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Missed(number) => self.missed += number,
            Event::Packet(packet) if self.split.store(packet) => {}
            Event::Packet(packet) => self.add_packet(packet),
        }
    }

    fn add_packet(&mut self, packet: &Packet) {
        for ns in [packet.arrived_ns, packet.left_ns].into_iter().flatten() {
            let (start, end) = self.span_ns.unwrap_or((ns, ns));
            self.span_ns = Some((start.min(ns), end.max(ns)));
        }
        self.all.add(packet);
        self.lengths.add(packet);
        let stream = packet.ends.map_or(NO_STREAM, |ends| {
            let next = self.streams.len();
            let number = *self.numbers.entry(ends).or_insert(next);
            if number == next {
                self.streams.push((ends, CountsBuilder::default()));
            }
            self.streams[number].1.add(packet);
            number
        });
        self.arrivals
            .extend(packet.arrived_ns.map(|arrived_ns| ArrivedPacket {
                arrived_ns,
                stream,
                dropped_ns: packet.left_ns.filter(|_| packet.is_dropped()),
            }));
    }

    /// Computes the measures of all events.
    #[must_use]
    pub fn finish(mut self, reasons: &Reasons) -> Summary {
        for packet in std::mem::take(&mut self.split).resolve() {
            self.add_packet(&packet);
        }
        let (start, end) = self.span_ns.unwrap_or_default();
        let losses: Vec<_> = self
            .streams
            .iter()
            .map(|(_, counts)| counts.losses())
            .collect();
        let stream = |(ends, counts): (Endpoints, CountsBuilder)| Stream {
            ends,
            account: counts.finish(reasons),
        };
        Summary {
            duration_s: (end - start) as f64 / 1e9,
            missed: self.missed,
            all: self.all.finish(reasons),
            length: self.lengths.finish(),
            drops: drops::drops(self.arrivals, &losses),
            streams: self.streams.into_iter().map(stream).collect(),
        }
    }
}

/// Packet counts of a stream, or of all streams.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueCounts {
    /// Packets offered to the queue.
    pub offered: u64,
    /// Offered packets that the queue sent.
    pub sent: u64,
    /// Offered packets dropped on arrival.
    pub refused: u64,
    /// Offered packets dropped from the queue.
    pub dropped: u64,
    /// Offered packets without an observed end, probably still in the queue at the end.
    pub unseen: u64,
    /// Packets sent without an observed arrival; they are not among the offered ones.
    pub unannounced: u64,
    /// Segments sent; more than packets with segmentation offload.
    sent_segments: u64,
    /// Bytes sent, as counted by the queueing disciplines.
    pub sent_bytes: u64,
    /// Dropped packets by the kernel's reason.
    pub reasons: BTreeMap<String, u64>,
    /// Waiting time of sent packets in the queue, in milliseconds.
    pub delay_ms: Quantiles,
}

impl QueueCounts {
    /// Returns the dropped share of the offered packets, 0 to 1; `None` without offered packets.
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        share(self.refused + self.dropped, self.offered)
    }
}

/// Packet counts before the reasons are named.
#[derive(Debug, Default)]
struct CountsBuilder {
    dispositions: [u64; Disposition::ALL.len()],
    unannounced: u64,
    sent_segments: u64,
    sent_bytes: u64,
    reasons: BTreeMap<u32, u64>,
    delays: Vec<u64>,
}

impl CountsBuilder {
    fn add(&mut self, packet: &Packet) {
        if packet.disposition == Disposition::Sent {
            self.sent_segments += u64::from(packet.segments);
            self.sent_bytes += u64::from(packet.counted);
        }
        if packet.arrived_ns.is_none() {
            self.unannounced += 1;
            return;
        }
        self.dispositions[packet.disposition as usize] += 1;
        self.delays.extend(packet.delay_ns());
        if packet.is_dropped() {
            *self.reasons.entry(packet.reason).or_default() += 1;
        }
    }

    /// Returns the offered packets, and the dropped ones among them.
    fn losses(&self) -> (u64, u64) {
        let of = |disposition| self.dispositions[disposition as usize];
        (
            self.dispositions.iter().sum(),
            of(Disposition::Refused) + of(Disposition::Dropped),
        )
    }

    fn finish(self, reasons: &Reasons) -> QueueCounts {
        let of = |disposition| self.dispositions[disposition as usize];
        let named = self.reasons.iter();
        QueueCounts {
            offered: self.dispositions.iter().sum(),
            sent: of(Disposition::Sent),
            refused: of(Disposition::Refused),
            dropped: of(Disposition::Dropped),
            unseen: of(Disposition::Unseen) + of(Disposition::Replaced),
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
