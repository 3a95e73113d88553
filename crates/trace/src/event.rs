//! Events that the analysis reports, and the terms in which it describes them.

use std::ops::AddAssign;

use serde::Serialize;

/// One of the two directions of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the originator to the responder.
    Forward,
    /// From the responder to the originator.
    Backward,
}

impl Direction {
    /// Both directions, forward first.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Backward];

    /// The opposite direction.
    #[must_use]
    #[inline]
    pub fn reverse(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }
}

/// A direction of the path between the two traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathDirection {
    /// From the host at the sender's trace to the one at the receiver's.
    ToReceiver,
    /// From the host at the receiver's trace to the one at the sender's.
    ToSender,
}

/// One of two traces, or the end at which it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The one at the sender, or the only one.
    Sender,
    /// The one at the receiver.
    Receiver,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

/// By how much the clock of the trace at the receiver is ahead of the one at the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// Both are the same clock.
    Never,
    /// About so many nanoseconds.
    About(i64),
}

/// A packet as its sender's trace shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The packet's direction.
    pub direction: Direction,
    /// [`Packet::number`](crate::Packet::number).
    pub packet: u64,
    /// When it was captured, in nanoseconds since 1970.
    pub at_ns: i64,
    /// What the packet was for.
    pub class: Class,
    /// The packet's PSH flag: the sender had no more to send at that time.
    pub push: bool,
    /// Position of the packet's first byte of payload.
    pub begin: i64,
    /// Position behind the packet's payload.
    pub end: i64,
    /// Bytes never sent before.
    pub new_bytes: u64,
    /// Bytes sent before.
    pub old_bytes: u64,
    /// The packet's size on the wire with link header, in bytes.
    pub wire_bytes: u32,
    /// Packets with new bytes that were sent before it and not acknowledged.
    pub in_flight: u32,
    /// Bytes that were sent before it and not acknowledged.
    pub bytes_in_flight: u64,
}

/// What a packet was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// New bytes alone.
    New,
    /// New bytes, and some that were sent before.
    Bundled,
    /// Bytes that were sent before, alone.
    Retransmission {
        /// 1 if none of the bytes had been sent more than once, 2 if some had been sent twice,
        /// and so on, bundled copies counted as well; 0 if the copies before it are not known:
        /// they were acknowledged, or were sent before the trace began.
        nth: u32,
    },
    /// A probe of an idle connection.
    KeepAlive,
    /// A probe of a closed window.
    WindowProbe,
    /// No payload.
    Control,
}

/// A packet as the trace at its receiver shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// The packet's direction.
    pub direction: Direction,
    /// [`Packet::number`](crate::Packet::number) in that trace.
    pub packet: u64,
    /// When it was captured there, by that trace's clock.
    pub at_ns: i64,
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// The packet's size on the wire with link header, in bytes.
    pub wire_bytes: u32,
}

/// An ACK as the trace shows it at the sender of what it acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acked {
    /// The direction of what the ACK acknowledges; the ACK itself went the other way.
    pub direction: Direction,
    /// [`Packet::number`](crate::Packet::number).
    pub packet: u64,
    /// When it was captured, in nanoseconds since 1970.
    pub at_ns: i64,
    /// All before this position is acknowledged.
    pub position: i64,
    /// Bytes that it acknowledged first.
    pub bytes: u64,
    /// Bytes that its SACK blocks covered first.
    pub sacked_bytes: u64,
    /// A duplicate ACK: of RFC 5681, section 2; if it has SACK blocks, of RFC 6675, section 2, one
    /// that reports bytes, or the FIN, which no block had reported.
    pub duplicate: bool,
    /// Bytes that it says came twice (RFC 2883), by position.
    pub dsack: Option<(i64, i64)>,
    /// The time since the last packet was sent that it acknowledged, in nanoseconds, if that
    /// was sent only once and was not bundled.
    pub rtt_ns: Option<i64>,
}

impl Class {
    /// Whether it is new, bundled or retransmitted payload; a probe's is none.
    #[must_use]
    pub fn carries_data(self) -> bool {
        matches!(
            self,
            Self::New | Self::Bundled | Self::Retransmission { .. }
        )
    }
}

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
