//! Which packets with a connection's addresses and ports are its own.

use super::half::HalfConnection;
use super::seen::{Seen, Side};
use super::{Connection, Direction, Handshake, Start};
use crate::fingerprint::fingerprint;
use crate::packet::Packet;
use crate::pair::PathDirection;
use crate::ranges::Tracker;
use crate::sequence::LARGEST_WINDOW;

/// Bytes from one packet of a connection to the next, or to the ACK that answers it. More are seldom
/// in flight, and numbers that are guessed or damaged are seldom so close.
const CLOSE: u32 = 1 << 24;

impl Connection {
    pub(super) fn new(number: u64, packet: &Packet, first_ns: i64, has_receiver: bool) -> Self {
        let (start, originator, responder) = match (packet.flags.syn, packet.ack) {
            (true, None) => (Start::Syn, packet.from, packet.to),
            (true, Some(_)) => (Start::SynAck, packet.to, packet.from),
            (false, _) => (Start::Midway, packet.from, packet.to),
        };
        Self {
            number,
            originator,
            responder,
            start,
            handshake: Handshake::default(),
            first_ns,
            last_ns: first_ns,
            refused: false,
            reset: false,
            closed: false,
            reversed: None,
            seen: Seen::default(),
            strays: [None, None],
            halves: [
                HalfConnection::new(has_receiver),
                HalfConnection::new(has_receiver),
            ],
        }
    }

    /// The direction of a packet, if it has this connection's addresses and ports.
    #[inline]
    pub(super) fn direction_of(&self, packet: &Packet) -> Option<Direction> {
        if packet.from == self.originator && packet.to == self.responder {
            Some(Direction::Forward)
        } else if packet.from == self.responder && packet.to == self.originator {
            Some(Direction::Backward)
        } else {
            None
        }
    }

    /// Whether a packet of a trace, with this connection's addresses and ports, can be its own.
    #[inline]
    pub(super) fn takes(&self, side: Side, direction: Direction, packet: &Packet) -> bool {
        if let Some(stray) = &self.strays[side as usize]
            && agrees(stray, packet)
        {
            return false;
        }
        let half = self.half_connection(direction);
        let Some(numbering) = half.numbering else {
            return true;
        };
        if packet.flags.syn {
            let fresh = half.tracker.as_ref().is_none_or(Tracker::is_fresh);
            return packet.ack.is_some() && fresh || numbering.initial() == packet.seq;
        }
        let next = half.tracker.as_ref().map_or(0, Tracker::next);
        let distance = numbering.position(next, packet.seq).abs_diff(next);
        packet.payload_len == 0 || packet.flags.rst || distance <= LARGEST_WINDOW.unsigned_abs()
    }

    /// Keeps a packet that cannot be its own: the first of another connection, if another packet
    /// agrees with it, else a stray.
    pub(super) fn keep_stray(&mut self, side: Side, packet: &Packet) {
        let before = self.strays[side as usize].replace(Box::new(*packet));
        if let Some(before) = before {
            self.count_stray(side, &before);
        }
    }

    /// Takes the packet that was kept, if this one shows that it is another connection's.
    pub(super) fn agreeing(&mut self, side: Side, packet: &Packet) -> Option<Box<Packet>> {
        self.strays[side as usize].take_if(|stray| agrees(stray, packet))
    }

    /// Counts what is kept at its end as strays.
    pub(crate) fn count_strays(&mut self) {
        for side in [Side::Sender, Side::Receiver] {
            if let Some(stray) = self.strays[side as usize].take() {
                self.count_stray(side, &stray);
            }
        }
    }

    fn count_stray(&mut self, side: Side, stray: &Packet) {
        let Some(direction) = self.direction_of(stray) else {
            return;
        };
        let from = match self.path_direction(direction) {
            PathDirection::ToReceiver => Side::Sender,
            PathDirection::ToSender => Side::Receiver,
        };
        let half = self.half_connection_mut(direction);
        match &mut half.link {
            Some(link) if from != side => link.passage.unmatched_packets += 1,
            _ => half.count_stray(stray),
        }
    }
}

/// Whether a packet is of the same connection as one that was kept, and brings more than that.
#[cold]
fn agrees(kept: &Packet, packet: &Packet) -> bool {
    if packet.flags.syn || packet.flags.rst {
        return false;
    }
    let number = if packet.from != kept.from {
        packet.ack
    } else if fingerprint(packet) != fingerprint(kept) {
        Some(packet.seq)
    } else {
        None
    };
    let end = kept.seq.wrapping_add(kept.payload_len);
    number.is_some_and(|number| (number.wrapping_sub(end) as i32).unsigned_abs() <= CLOSE)
}
