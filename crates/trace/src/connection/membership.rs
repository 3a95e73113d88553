//! Assigns packets to connections with the same addresses and ports, and detects packets that a
//! trace shows twice.

use std::iter;

use super::half::HalfConnection;
use super::{Connection, Handshake, Start, Visibility};
use crate::event::{Direction, PathDirection, Side};
use crate::packet::{MAX_WINDOW, Packet, fingerprint};
use crate::ranges::Tracker;

/// Maximum distance in bytes between two packets of a connection, or a packet and its ACK. More is
/// seldom in flight, and guessed or damaged numbers are seldom so close.
const MAX_DISTANCE: u32 = 1 << 24;

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
            early_ack: None,
            reversed: None,
            seen: Visibility::default(),
            strays: [None, None],
            halves: [
                HalfConnection::new(has_receiver),
                HalfConnection::new(has_receiver),
            ],
        }
    }

    /// The direction of a packet; `None` unless it has this connection's addresses and ports.
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

    /// Whether a packet with this connection's addresses and ports can belong to it.
    #[inline]
    pub(super) fn accepts(&self, side: Side, direction: Direction, packet: &Packet) -> bool {
        if let Some(stray) = &self.strays[side as usize]
            && is_same_connection(stray, packet)
        {
            return false;
        }
        let half = self.half_connection(direction);
        let Some(numbering) = half.numbering else {
            return true;
        };
        if packet.flags.syn {
            let fresh = half.tracker.as_ref().is_none_or(Tracker::is_fresh);
            // Another answer to the same SYN belongs to its connection.
            let syn = self.half_connection(direction.reverse()).numbering;
            let answered = |ack: u32| fresh || syn.is_some_and(|syn| syn.number(1) == ack);
            return packet.ack.is_some_and(answered) || numbering.initial() == packet.seq;
        }
        let next = half.tracker.as_ref().map_or(0, Tracker::next);
        let distance = numbering.position(next, packet.seq).abs_diff(next);
        packet.payload_len == 0 || packet.flags.rst || distance <= MAX_WINDOW.unsigned_abs()
    }

    /// Stores a packet that cannot belong to this connection. If another packet matches it, it is
    /// the first of a new connection; otherwise it is a stray.
    pub(super) fn store_stray(&mut self, side: Side, packet: &Packet) {
        let before = self.strays[side as usize].replace(Box::new(*packet));
        if let Some(before) = before {
            self.count_stray(side, &before);
        }
    }

    /// Takes the stored packet if this one shows that it belongs to another connection.
    pub(super) fn take_matching_stray(
        &mut self,
        side: Side,
        packet: &Packet,
    ) -> Option<Box<Packet>> {
        self.strays[side as usize].take_if(|stray| is_same_connection(stray, packet))
    }

    /// Counts the stored packets as strays, at the end of the connection.
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
            Some(link) if from != side => link.delivery_stats.unmatched_packets += 1,
            _ => half.count_stray(stray),
        }
    }
}

/// Whether a packet belongs to the same connection as a stored one, and is not its copy.
#[cold]
fn is_same_connection(stored: &Packet, packet: &Packet) -> bool {
    if packet.flags.syn || packet.flags.rst {
        return false;
    }
    let number = if packet.from != stored.from {
        packet.ack
    } else if fingerprint(packet) != fingerprint(stored) {
        Some(packet.seq)
    } else {
        None
    };
    let end = stored.seq.wrapping_add(stored.payload_len);
    number.is_some_and(|number| (number.wrapping_sub(end) as i32).unsigned_abs() <= MAX_DISTANCE)
}

/// The last packets of a trace, to detect those that it shows twice: a capture on all devices sees
/// a packet on each device that it passes.
///
/// Two copies on one interface are two packets, unless the whole trace shows every packet twice. A
/// path that duplicates packets does so only to some.
#[derive(Debug)]
pub(crate) struct RepeatDetector {
    /// The last packets by hash. Together they exceed what any link carries in the relevant time,
    /// and still fit into a cache.
    buckets: Vec<RecentPackets>,
    /// Whether the trace shows every packet twice, by [`shows_all_twice`].
    shows_all_twice: bool,
}

const BUCKETS: usize = 128;

/// Eight recent packets of one bucket.
#[derive(Debug, Clone, Default)]
struct RecentPackets {
    fingerprints: [u64; 8],
    seen: [(i64, u32); 8],
    next: usize,
}

/// Two devices of one host show a packet within this time. A retransmission takes longer and has
/// another IP identification.
const SAME_PACKET_NS: u64 = 1_000_000;

/// The same without IP identification. No timeout and no thin stream is this fast.
const SAME_PACKET_WITHOUT_ID_NS: u64 = 100_000;

/// Number of first packets that decide whether a trace shows all packets twice.
pub(crate) const DETECTION_PACKETS: usize = 1000;

impl RepeatDetector {
    /// `shows_all_twice`: result of [`shows_all_twice`] for this trace.
    pub(crate) fn new(shows_all_twice: bool) -> Self {
        Self {
            buckets: vec![RecentPackets::default(); BUCKETS],
            shows_all_twice,
        }
    }

    /// Whether the trace shows a packet with this fingerprint a second time. `number` is its
    /// connection's.
    #[inline]
    pub(crate) fn is_repeat(
        &mut self,
        (number, direction): (u64, Direction),
        packet: &Packet,
        fingerprint: u64,
    ) -> bool {
        let stream = 2 * number + direction as u64;
        let fingerprint = fingerprint ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = (fingerprint >> 32) as usize % BUCKETS;
        self.buckets[index].is_repeat(packet, fingerprint, self.shows_all_twice)
    }
}

impl RecentPackets {
    #[inline]
    fn is_repeat(&mut self, packet: &Packet, fingerprint: u64, shows_all_twice: bool) -> bool {
        let identified = packet.has_ip_id();
        if !identified && packet.payload_len == 0 && !packet.flags.syn && !packet.flags.fin {
            // Equal ACKs without identification are normal: duplicate ACKs.
            return false;
        }
        let limit = if identified {
            SAME_PACKET_NS
        } else {
            SAME_PACKET_WITHOUT_ID_NS
        };
        let here = |interface: u32| shows_all_twice || interface != packet.interface;
        // There is rarely a match, so a branchless check is faster.
        let known = |found, &other| found | (other == fingerprint);
        let seen = self.fingerprints.iter().fold(false, known)
            && iter::zip(&self.fingerprints, self.seen).any(|(&other, (at_ns, interface))| {
                other == fingerprint && packet.at_ns.abs_diff(at_ns) <= limit && here(interface)
            });
        if !seen {
            let index = self.next % self.fingerprints.len();
            self.fingerprints[index] = fingerprint;
            self.seen[index] = (packet.at_ns, packet.interface);
            self.next = index + 1;
        }
        seen
    }
}

/// Whether a trace with these first packets shows every packet twice.
pub(crate) fn shows_all_twice<'a>(lead: impl Iterator<Item = &'a Packet>) -> bool {
    let (mut last, mut packets, mut repeats) = (RecentPackets::default(), 0, 0);
    for packet in lead.take(DETECTION_PACKETS) {
        packets += 1;
        repeats += u32::from(last.is_repeat(packet, fingerprint(packet), true));
    }
    // Half of the packets are copies, except those missing in the trace.
    packets >= 10 && repeats * 20 >= packets * 9
}
