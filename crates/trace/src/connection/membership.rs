//! Which packets with a connection's addresses and ports are its own, and which a trace shows twice.

use std::iter;

use super::half::HalfConnection;
use super::{Connection, Handshake, Seen, Start};
use crate::event::{Direction, PathDirection, Side};
use crate::packet::{LARGEST_WINDOW, Packet, fingerprint};
use crate::ranges::Tracker;

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

/// The last packets of a trace, to tell when it shows one of them twice: captures on all devices
/// see a packet on each device that it passes.
///
/// What comes twice on one interface is two packets, unless the whole trace shows everything
/// twice: a path that duplicates packets does so to some.
#[derive(Debug)]
pub(crate) struct Repeats {
    /// The last few of those that are alike. All together they are more than any link carries in
    /// the time that matters, and few enough for a cache.
    alike: Vec<Last>,
    /// Whether the trace has every packet twice, by [`doubled`].
    doubled: bool,
}

const ALIKE: usize = 128;

/// Some last packets.
#[derive(Debug, Clone, Default)]
struct Last {
    prints: [u64; 8],
    seen: [(i64, u32); 8],
    next: usize,
}

/// Two devices of one host show a packet within this time. A sender takes longer to send
/// anything again, and gives it another IP identification when it does.
const SAME_PACKET_NS: u64 = 1_000_000;

/// The time within which two devices show a packet without IP identification: no time-out and no
/// thin stream is this quick.
const SAME_PACKET_WITHOUT_ID_NS: u64 = 100_000;

/// So many packets of a trace show whether it has all of them twice.
pub(crate) const LEAD: usize = 1000;

impl Repeats {
    /// `doubled`: the trace has every packet twice, by [`doubled`].
    pub(crate) fn new(doubled: bool) -> Self {
        Self {
            alike: vec![Last::default(); ALIKE],
            doubled,
        }
    }

    /// Whether the trace shows this packet, which has that fingerprint, a second time. `number`:
    /// its connection's.
    #[inline]
    pub(crate) fn is_repeat(
        &mut self,
        (number, direction): (u64, Direction),
        packet: &Packet,
        print: u64,
    ) -> bool {
        let whose = 2 * number + direction as u64;
        let print = print ^ whose.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (print >> 32) as usize % ALIKE;
        self.alike[place].is_repeat(packet, print, self.doubled)
    }
}

impl Last {
    #[inline]
    fn is_repeat(&mut self, packet: &Packet, print: u64, doubled: bool) -> bool {
        let identified = packet.ip_id.is_some_and(|id| id != 0);
        if !identified && packet.payload_len == 0 && !packet.flags.syn && !packet.flags.fin {
            // Equal acknowledgements without identification are usual: duplicate ACKs.
            return false;
        }
        let limit = if identified {
            SAME_PACKET_NS
        } else {
            SAME_PACKET_WITHOUT_ID_NS
        };
        let here = |interface: u32| doubled || interface != packet.interface;
        // Mostly there is none, which is found faster without a branch for each.
        let known = |found, &other| found | (other == print);
        let seen = self.prints.iter().fold(false, known)
            && iter::zip(&self.prints, self.seen).any(|(&other, (at_ns, interface))| {
                other == print && packet.at_ns.abs_diff(at_ns) <= limit && here(interface)
            });
        if !seen {
            let place = self.next % self.prints.len();
            self.prints[place] = print;
            self.seen[place] = (packet.at_ns, packet.interface);
            self.next = place + 1;
        }
        seen
    }
}

/// Whether a trace that begins with these packets shows every packet twice.
pub(crate) fn doubled<'a>(lead: impl Iterator<Item = &'a Packet>) -> bool {
    let (mut last, mut packets, mut again) = (Last::default(), 0, 0);
    for packet in lead.take(LEAD) {
        packets += 1;
        again += u32::from(last.is_repeat(packet, fingerprint(packet), true));
    }
    // Half of them come again, but for those that the trace misses.
    packets >= 10 && again * 20 >= packets * 9
}
