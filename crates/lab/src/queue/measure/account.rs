use std::collections::BTreeMap;

use pillion_stats::measure::share;
use serde::Serialize;

use super::Quantiles;
use crate::queue::{Fate, Packet, Reasons};

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
    pub sent_segments: u64,
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
pub(super) struct Tally {
    fates: [u64; Fate::ALL.len()],
    unannounced: u64,
    sent_segments: u64,
    sent_bytes: u64,
    reasons: BTreeMap<u32, u64>,
    delays: Vec<u64>,
}

impl Tally {
    pub(super) fn add(&mut self, packet: &Packet) {
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
    pub(super) fn losses(&self) -> (u64, u64) {
        let of = |fate| self.fates[fate as usize];
        (
            self.fates.iter().sum(),
            of(Fate::Refused) + of(Fate::Dropped),
        )
    }

    pub(super) fn close(self, reasons: &Reasons) -> Account {
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
