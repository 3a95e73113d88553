//! Connections, and what is known of each.

mod half;
mod membership;
mod observe;
mod table;

use serde::Serialize;

use crate::event::{Direction, Passage, PathDirection, Side};
use crate::link::Link;
use crate::packet::{Endpoint, Packet};
use crate::ranges::{Range, Tracker};

pub use half::{Counts, HalfConnection};
pub(crate) use membership::{LEAD, Repeats, doubled};
pub(crate) use observe::LARGEST_FRAME;
pub(crate) use table::{CACHED, Found, Table};

/// A TCP connection.
#[derive(Debug)]
pub struct Connection {
    /// 1 for the first in the trace, 2 for the second and so on.
    pub number: u64,
    /// Who opened it; where the trace does not show that, who sent the first packet.
    pub originator: Endpoint,
    /// The end that it was opened to.
    pub responder: Endpoint,
    /// What the trace shows of its beginning.
    pub start: Start,
    /// How it was opened.
    pub handshake: Handshake,
    /// When its first packet was captured, in nanoseconds since 1970.
    pub first_ns: i64,
    /// When its last packet was captured.
    pub last_ns: i64,
    refused: bool,
    reset: bool,
    closed: bool,
    /// Whether the originator is the one at the receiver's trace, once that is decided.
    pub(crate) reversed: Option<bool>,
    pub(crate) seen: Seen,
    /// Of each trace the last packet that has its addresses and ports and cannot be its own.
    strays: [Option<Box<Packet>>; 2],
    halves: [HalfConnection; 2],
}

/// With what a connection begins in the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the originator's SYN.
    Syn,
    /// With the responder's SYN and ACK; the SYN before it is not in the trace.
    SynAck,
    /// In its middle.
    Midway,
}

impl Connection {
    /// What is known of one direction.
    #[must_use]
    #[inline]
    pub fn half_connection(&self, direction: Direction) -> &HalfConnection {
        &self.halves[direction as usize]
    }

    #[inline]
    pub(crate) fn half_connection_mut(&mut self, direction: Direction) -> &mut HalfConnection {
        &mut self.halves[direction as usize]
    }

    /// The direction between the two traces in which packets of this direction travel.
    #[must_use]
    #[inline]
    pub fn path_direction(&self, direction: Direction) -> PathDirection {
        if (direction == Direction::Backward) == self.reversed.unwrap_or_default() {
            PathDirection::ToReceiver
        } else {
            PathDirection::ToSender
        }
    }

    /// The only one of two traces that shows it, so far, though the other was to; none of one trace.
    /// No packet of it counts as lost.
    #[must_use]
    pub fn only_at(&self) -> Option<Side> {
        self.seen.only()
    }

    /// How the packets of a direction fared on the way, where there are two traces and both show it.
    #[must_use]
    pub fn passage(&self, direction: Direction) -> Option<&Passage> {
        let passage = self.half_connection(direction).passage();
        passage.filter(|_| self.only_at().is_none())
    }

    #[inline]
    pub(crate) fn link_mut(&mut self, direction: Direction) -> &mut Link {
        self.half_connection_mut(direction)
            .link
            .get_or_insert_default()
    }

    /// Takes notice of the time of a packet, by the clock of the trace at the sender. What it has
    /// counted before `from_ns` is forgotten.
    #[inline]
    pub(crate) fn sees(&mut self, now_ns: i64, from_ns: i64) {
        if self.last_ns < from_ns && now_ns >= from_ns {
            self.forget_counts();
        }
        self.last_ns = self.last_ns.max(now_ns);
    }

    #[cold]
    fn forget_counts(&mut self) {
        for half in &mut self.halves {
            half.counts = Counts::default();
        }
        self.strays = [None, None];
    }

    /// The direction in which more bytes went, so far.
    #[must_use]
    pub fn main_direction(&self) -> Direction {
        let sent = |direction| self.half_connection(direction).counts.new_bytes;
        if sent(Direction::Backward) > sent(Direction::Forward) {
            Direction::Backward
        } else {
            Direction::Forward
        }
    }

    /// What became of the attempt to connect, so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        if self.handshake.completed_ns.is_some() {
            if self.reset {
                Outcome::Reset
            } else {
                Outcome::Completed
            }
        } else if self.start == Start::Midway {
            Outcome::NotSeen
        } else if self.refused {
            Outcome::Refused
        } else {
            Outcome::Unanswered
        }
    }

    /// Whether any payload went, either way.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.halves.iter().any(|half| half.first_data_ns.is_some())
    }

    /// Whether it was ended: by FIN both ways, or by RST.
    #[must_use]
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.reset || self.refused || self.halves.iter().all(HalfConnection::is_over)
    }

    /// Whether it is closed and was not when last asked.
    #[inline]
    pub(crate) fn closes_now(&mut self) -> bool {
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

    /// From its first packet to its last, in nanoseconds.
    #[must_use]
    pub fn duration_ns(&self) -> i64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}

/// How a connection was opened, as the thesis' `count3way` counts it (section 3.4.5): several
/// attempts with one initial sequence number are one connection that was tried several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Handshake {
    /// SYNs of the originator.
    pub syns: u32,
    /// SYNs with ACK of the responder.
    pub syn_acks: u32,
    /// When the first SYN was seen.
    pub first_syn_ns: Option<i64>,
    /// When the last SYN was seen that came before the SYN with ACK.
    pub last_syn_ns: Option<i64>,
    /// When the first SYN with ACK was seen.
    pub syn_ack_ns: Option<i64>,
    /// When the packet was seen that completed it.
    pub completed_ns: Option<i64>,
    /// Both ends sent a SYN without ACK: a simultaneous open (RFC 9293, section 3.5).
    pub simultaneous: bool,
}

/// What became of an attempt to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The trace begins after the handshake.
    NotSeen,
    /// No SYN with ACK came, or it was not acknowledged.
    Unanswered,
    /// RST answered the SYN.
    Refused,
    /// Completed.
    Completed,
    /// Completed, and broken by RST later.
    Reset,
}

/// What of a connection each of two traces has shown so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// By trace and direction.
    shown: [[bool; 2]; 2],
    /// Its ends are the hosts at both traces, as other connections tell.
    pub(crate) between_traces: bool,
}

impl Seen {
    #[inline]
    pub(crate) fn add(&mut self, side: Side, direction: Direction) {
        self.shown[side as usize][direction as usize] = true;
    }

    /// The only trace that shows it, as a filter or another path lets only one. What nobody answers
    /// between the hosts at both traces is shown by one because it was lost.
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
