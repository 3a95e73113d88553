//! Connections and their state.

mod half;
mod membership;
mod observe;
mod repeats;
mod table;

use serde::Serialize;

use crate::event::{DeliveryStats, Direction, PathDirection, Side};
use crate::link::Link;
use crate::packet::{Endpoint, Packet};
use crate::ranges::{Range, Tracker};

pub use half::{DirectionCounts, HalfConnection};
pub(crate) use membership::{CaptureContext, DETECTION_PACKETS, DoubledLinks, RepeatDetector};
pub(crate) use table::{CACHED_CONNECTIONS, ConnectionTable, Lookup};

/// A TCP connection.
#[derive(Debug)]
pub struct Connection {
    /// 1 for the first in the trace, 2 for the second and so on.
    pub number: u64,
    /// The end that opened it; if not in the trace, the sender of the first packet.
    pub originator: Endpoint,
    /// The other end.
    pub responder: Endpoint,
    /// The first packet type in the trace.
    pub start: Start,
    /// Its three-way handshake.
    pub handshake: Handshake,
    /// When its first packet was captured, in nanoseconds since 1970.
    pub first_ns: i64,
    /// When its last packet was captured.
    pub last_ns: i64,
    refused: bool,
    reset: bool,
    closed: bool,
    /// The originator's acknowledgement number before any SYN-ACK.
    early_ack: Option<u32>,
    /// Whether the originator is at the receiver's trace, once decided.
    pub(crate) reversed: Option<bool>,
    pub(crate) seen: Visibility,
    /// Per trace, the last packet with its addresses and ports that cannot belong to it.
    strays: [Option<Box<Packet>>; 2],
    halves: [HalfConnection; 2],
}

/// The packet with which a connection starts in the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The originator's SYN.
    Syn,
    /// The responder's SYN-ACK; the SYN is not in the trace.
    SynAck,
    /// Another packet: the trace starts later.
    Midway,
}

impl Connection {
    /// State of one direction.
    #[must_use]
    #[inline]
    pub fn half_connection(&self, direction: Direction) -> &HalfConnection {
        &self.halves[direction as usize]
    }

    #[inline]
    pub(crate) fn half_connection_mut(&mut self, direction: Direction) -> &mut HalfConnection {
        &mut self.halves[direction as usize]
    }

    /// The path direction between the two traces in which packets of this direction travel.
    #[must_use]
    #[inline]
    pub fn path_direction(&self, direction: Direction) -> PathDirection {
        if (direction == Direction::Backward) == self.reversed.unwrap_or_default() {
            PathDirection::ToReceiver
        } else {
            PathDirection::ToSender
        }
    }

    /// The only one of two traces that shows it so far, although both could. `None` with one trace.
    /// No packet of such a connection counts as lost.
    #[must_use]
    pub fn only_at(&self) -> Option<Side> {
        self.seen.only()
    }

    /// Delivery of one direction's packets, if there are two traces and both show it.
    #[must_use]
    pub fn delivery_stats(&self, direction: Direction) -> Option<&DeliveryStats> {
        let delivery_stats = self.half_connection(direction).delivery_stats();
        delivery_stats.filter(|_| self.only_at().is_none())
    }

    #[inline]
    pub(crate) fn link_mut(&mut self, direction: Direction) -> &mut Link {
        self.half_connection_mut(direction)
            .link
            .get_or_insert_default()
    }

    /// Records the time of a packet, by the clock of the sender's trace. Counters from before
    /// `from_ns` are reset.
    #[inline]
    pub(crate) fn observe_time(&mut self, now_ns: i64, from_ns: i64) {
        if self.last_ns < from_ns && now_ns >= from_ns {
            self.reset_counts();
        }
        self.last_ns = self.last_ns.max(now_ns);
    }

    #[cold]
    fn reset_counts(&mut self) {
        for half in &mut self.halves {
            half.counts = DirectionCounts::default();
            half.repeats.take_counts();
        }
        self.strays = [None, None];
    }

    /// Decides at its end whether packets that the trace shows again were copies.
    pub(crate) fn classify_repeats(&mut self) {
        self.halves
            .iter_mut()
            .for_each(HalfConnection::classify_repeats);
    }

    /// The direction with more new bytes so far.
    #[must_use]
    pub fn main_direction(&self) -> Direction {
        let sent = |direction| self.half_connection(direction).counts.new_bytes;
        if sent(Direction::Backward) > sent(Direction::Forward) {
            Direction::Backward
        } else {
            Direction::Forward
        }
    }

    /// Outcome of the connection attempt so far.
    #[must_use]
    pub fn outcome(&self) -> ConnectionOutcome {
        if self.handshake.completed_ns.is_some() {
            if self.reset {
                ConnectionOutcome::Reset
            } else {
                ConnectionOutcome::Completed
            }
        } else if self.start == Start::Midway {
            ConnectionOutcome::NotSeen
        } else if self.refused {
            ConnectionOutcome::Refused
        } else {
            ConnectionOutcome::Unanswered
        }
    }

    /// Whether any payload was sent, in either direction.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.halves.iter().any(|half| half.first_data_ns.is_some())
    }

    /// Whether it was closed by FIN in both directions, or by RST.
    #[must_use]
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.reset || self.refused || self.halves.iter().all(HalfConnection::is_finished)
    }

    /// Whether it has been closed since the last call.
    #[inline]
    pub(crate) fn newly_closed(&mut self) -> bool {
        let before = self.closed;
        self.closed = before || self.is_closed();
        self.closed && !before
    }

    #[inline]
    pub(crate) fn has_finished_range(&self, direction: Direction) -> bool {
        let tracker = self.half_connection(direction).tracker.as_ref();
        tracker.is_some_and(Tracker::has_finished)
    }

    #[inline]
    pub(crate) fn first_range(&self, direction: Direction) -> Option<&Range> {
        self.half_connection(direction).tracker.as_ref()?.first()
    }

    #[inline]
    pub(crate) fn drop_first_range(&mut self, direction: Direction) {
        if let Some(tracker) = &mut self.half_connection_mut(direction).tracker {
            tracker.drop_first();
        }
    }

    /// Time from its first packet to its last, in nanoseconds.
    #[must_use]
    pub fn duration_ns(&self) -> i64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}

/// The handshake, as counted by the thesis's `count3way` (section 3.4.5). Attempts with one initial
/// sequence number are one connection with several tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Handshake {
    /// SYNs of the originator.
    pub syns: u32,
    /// SYN-ACKs of the responder.
    pub syn_acks: u32,
    /// Time of the first SYN.
    pub first_syn_ns: Option<i64>,
    /// Time of the last SYN before the SYN-ACK.
    pub last_syn_ns: Option<i64>,
    /// Time of the first SYN-ACK.
    pub syn_ack_ns: Option<i64>,
    /// Time of the packet that completed it.
    pub completed_ns: Option<i64>,
    /// Both ends sent a SYN without ACK: a simultaneous open (RFC 9293, section 3.5).
    pub simultaneous: bool,
}

/// Outcome of a connection attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionOutcome {
    /// The trace starts after the handshake.
    NotSeen,
    /// No SYN-ACK arrived, or it was not acknowledged.
    Unanswered,
    /// RST answered the SYN.
    Refused,
    /// Completed.
    Completed,
    /// Completed, and later reset by RST.
    Reset,
}

/// The packets of a connection that each of two traces has shown so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Visibility {
    /// By trace and direction.
    shown: [[bool; 2]; 2],
    /// Other connections show that its ends are the hosts at the two traces.
    pub(crate) between_traces: bool,
}

impl Visibility {
    #[inline]
    pub(crate) fn add(&mut self, side: Side, direction: Direction) {
        self.shown[side as usize][direction as usize] = true;
    }

    /// The only trace that shows it, because of a filter or another path. An unanswered attempt
    /// between the hosts at both traces is different: it was lost.
    pub(crate) fn only(&self) -> Option<Side> {
        let [sender, receiver] = self.shown.map(|ways| ways.contains(&true));
        let side = match (sender, receiver) {
            (true, false) => Side::Sender,
            (false, true) => Side::Receiver,
            _ => return None,
        };
        let answered = !self.shown[side as usize].contains(&false);
        (answered || !self.between_traces).then_some(side)
    }
}
