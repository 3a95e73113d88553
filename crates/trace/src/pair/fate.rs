use std::ops::AddAssign;

use serde::Serialize;

use super::clock::PathDirection;
use crate::connection::Direction;
use crate::event::Class;

/// What became of a packet on its way from one trace to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fate {
    /// The packet's direction in its connection.
    pub direction: Direction,
    /// The packet's direction between the two traces.
    pub path_direction: PathDirection,
    /// [`Packet::number`](crate::Packet::number) in the trace at its sender.
    pub packet: u64,
    /// When the packet was captured there, by that trace's clock.
    pub sent_ns: i64,
    /// What the packet was for.
    pub class: Class,
    /// Position of the packet's first byte of payload.
    pub begin: i64,
    /// Position behind the packet's payload.
    pub end: i64,
    /// Bytes of the packet's payload that had been sent before.
    pub old_bytes: u64,
    /// Whether the packet arrived.
    pub arrival: Arrival,
}

/// Whether a packet arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The packet arrived.
    Delivered {
        /// When, by the clock of the trace at its receiver.
        at_ns: i64,
        /// [`Packet::number`](crate::Packet::number) in that trace.
        packet: u64,
        /// Bytes that the receiver did not have, of those that were sent before: what a bundle
        /// or a retransmission repaired.
        repaired_bytes: u64,
    },
    /// The packet arrived, at a time that is not known: what it carried was acknowledged, nothing
    /// else carried that, and the trace at its receiver does not show it.
    Unseen,
    /// The packet did not arrive, or the trace misses it.
    Lost,
    /// Nothing tells: the other trace does not cover that time, segments were joined or cut on
    /// the way, or what it carried arrived unseen and others carried that as well. What is known
    /// of bytes is exact all the same.
    Unknown,
}

impl Fate {
    /// The packet's time on the way by two clocks that need not agree, in nanoseconds:
    /// [`Clock`](crate::pair::Clock) makes a delay of it.
    #[must_use]
    pub fn raw_delay_ns(&self) -> Option<i64> {
        match self.arrival {
            Arrival::Delivered { at_ns, .. } => Some(at_ns.saturating_sub(self.sent_ns)),
            _ => None,
        }
    }
}

/// How the packets of one direction fared between the two traces, packets that a trace shows
/// twice left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Passage {
    /// Packets that arrived.
    pub delivered_packets: u64,
    /// Packets that arrived, as ACKs show, and that the trace at the receiver misses.
    pub unseen_packets: u64,
    /// Packets that did not arrive.
    pub lost_packets: u64,
    /// Lost packets with payload that are new, bundled or retransmitted.
    pub lost_data_packets: u64,
    /// The payload of lost data packets.
    pub lost_bytes: u64,
    /// Packets of which it cannot be told.
    pub unknown_packets: u64,
    /// Packets that arrived once more.
    pub duplicated_packets: u64,
    /// Packets that arrived and were not sent like that: segments joined or cut on the way, or
    /// missed by the trace at the sender.
    pub unmatched_packets: u64,
    /// Bytes that arrived for the first time.
    pub delivered_bytes: u64,
    /// Bytes that were acknowledged and whose arrival the trace does not show.
    pub unseen_bytes: u64,
    /// Bundles of which a redundant byte was one that the receiver did not have.
    pub bundle_hits: u64,
    /// Bundles that arrived and of which it had all of the redundant bytes.
    pub bundle_misses: u64,
    /// Redundant bytes in bundles that the receiver did not have.
    pub repaired_bytes: u64,
    /// Redundant bytes in bundles that arrived and that it had.
    pub needless_bytes: u64,
    /// Runs of losses by length: how many were 1, 2, ... packets long in the order of sending;
    /// the last counts all longer ones.
    pub loss_runs: [u64; 16],
    /// The longest run of losses, in packets.
    pub longest_loss_run: u32,
    #[serde(skip)]
    run: u32,
}

impl Passage {
    /// Counts a packet's fate; to be called in the order of sending.
    #[inline]
    pub(crate) fn count(&mut self, fate: &Fate) {
        let data = fate.class.carries_data();
        match fate.arrival {
            Arrival::Lost => {
                self.lost_packets += 1;
                self.lost_data_packets += u64::from(data);
                self.lost_bytes += if data {
                    fate.begin.abs_diff(fate.end)
                } else {
                    0
                };
                self.run = self.run.saturating_add(1);
                return;
            }
            Arrival::Unknown => self.unknown_packets += 1,
            Arrival::Unseen => self.unseen_packets += 1,
            Arrival::Delivered { repaired_bytes, .. } => {
                self.delivered_packets += 1;
                if fate.class == Class::Bundled {
                    self.bundle_hits += u64::from(repaired_bytes > 0);
                    self.bundle_misses += u64::from(repaired_bytes == 0);
                    self.repaired_bytes += repaired_bytes;
                    self.needless_bytes += fate.old_bytes.saturating_sub(repaired_bytes);
                }
            }
        }
        self.end_run();
    }

    /// Ends the run of losses that may be going on.
    pub(crate) fn end_run(&mut self) {
        if let Some(longer) = self.run.checked_sub(1) {
            let place = (longer as usize).min(self.loss_runs.len() - 1);
            self.loss_runs[place] += 1;
            self.longest_loss_run = self.longest_loss_run.max(self.run);
            self.run = 0;
        }
    }
}

impl AddAssign for Passage {
    /// Of runs that are over.
    fn add_assign(&mut self, other: Self) {
        self.delivered_packets += other.delivered_packets;
        self.unseen_packets += other.unseen_packets;
        self.lost_packets += other.lost_packets;
        self.lost_data_packets += other.lost_data_packets;
        self.lost_bytes += other.lost_bytes;
        self.unknown_packets += other.unknown_packets;
        self.duplicated_packets += other.duplicated_packets;
        self.unmatched_packets += other.unmatched_packets;
        self.delivered_bytes += other.delivered_bytes;
        self.unseen_bytes += other.unseen_bytes;
        self.bundle_hits += other.bundle_hits;
        self.bundle_misses += other.bundle_misses;
        self.repaired_bytes += other.repaired_bytes;
        self.needless_bytes += other.needless_bytes;
        for (own, other) in self.loss_runs.iter_mut().zip(other.loss_runs) {
            *own += other;
        }
        self.longest_loss_run = self.longest_loss_run.max(other.longest_loss_run);
    }
}
