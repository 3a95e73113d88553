//! Assigns packets to connections with the same addresses and ports, and detects packets that a
//! trace shows twice.

use std::collections::{HashMap, HashSet};
use std::iter;

use foldhash::fast::RandomState;

use super::half::HalfConnection;
use super::repeats::Repeat;
use super::{Connection, Handshake, Start, Visibility};
use crate::event::{Direction, PathDirection, Side};
use crate::packet::{Packet, fingerprint};
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
        if packet.payload_len == 0 || packet.flags.rst {
            return true;
        }
        let Some(tracker) = &half.tracker else {
            return true;
        };
        let position = numbering.position(tracker.next(), packet.seq);
        tracker.is_near(position) && position >= tracker.acked() - i64::from(MAX_DISTANCE)
    }

    /// Whether a packet far outside the windows continues this connection after a gap in the trace:
    /// it acknowledges the other direction where that ended.
    pub(super) fn continues_after_gap(&self, packet: &Packet) -> bool {
        let Some(direction) = self.direction_of(packet) else {
            return false;
        };
        let other = self.half_connection(direction.reverse());
        let (Some(ack), Some(numbering), Some(tracker)) =
            (packet.ack, other.numbering, &other.tracker)
        else {
            return false;
        };
        let distance = numbering.position(tracker.next(), ack) - tracker.next();
        !self.is_closed() && distance.unsigned_abs() <= MAX_DISTANCE.into()
    }

    /// Continues with this packet's bytes. Later numbers are larger, by up to 4 GiB.
    pub(super) fn skip_gap(&mut self, packet: &Packet) {
        if let Some(direction) = self.direction_of(packet)
            && let half = self.half_connection_mut(direction)
            && let (Some(numbering), Some(tracker)) = (half.numbering, &mut half.tracker)
        {
            let gap = packet.seq.wrapping_sub(numbering.number(tracker.next()));
            tracker.skip_to(tracker.next() + i64::from(gap));
        }
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
/// a packet on each device that it passes, and a mirror port on each port.
///
/// Two copies on one interface are one packet where it was sent, because no retransmission follows
/// so soon, unless it was sent twice. Where it arrived, they are two: a path that duplicates packets
/// does so only to some. Exceptions are links that show every packet twice.
#[derive(Debug)]
pub(crate) struct RepeatDetector {
    /// The last packets by hash. Together they exceed what any link carries in the relevant time,
    /// and still fit into a cache.
    buckets: Vec<RecentPackets>,
    doubled: DoubledLinks,
}

const BUCKETS: usize = 128;

/// Eight recent packets of one bucket.
#[derive(Debug, Clone, Default)]
struct RecentPackets {
    fingerprints: [u64; 8],
    seen: [RecentPacket; 8],
    next: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct RecentPacket {
    at_ns: i64,
    interface: u32,
    /// Number of packets that its connection had received before.
    received: u32,
}

/// Two devices of one host show a packet within this time, and a copy follows. A retransmission
/// takes longer and has another IP identification.
const SAME_PACKET_NS: u64 = 1_000_000;

/// The same without IP identification. No timeout and no thin stream is this fast.
const SAME_PACKET_STRICT_NS: u64 = 100_000;

/// Number of first packets that decide which links show all packets twice.
pub(crate) const DETECTION_PACKETS: usize = 1000;

/// Where a packet was captured, to distinguish copies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CaptureContext {
    /// The connection's number, and the packet's direction.
    pub(crate) stream: (u64, Direction),
    /// At the packet's sender.
    pub(crate) at_sender: bool,
    /// Number of packets that the sender had received in this connection before.
    pub(crate) received: u64,
}

impl RepeatDetector {
    pub(crate) fn new(doubled: DoubledLinks) -> Self {
        Self {
            buckets: vec![RecentPackets::default(); BUCKETS],
            doubled,
        }
    }

    /// The repeat, if the trace shows a packet with this fingerprint a second time.
    #[inline]
    pub(crate) fn find(
        &mut self,
        packet: &Packet,
        fingerprint: u64,
        context: &CaptureContext,
    ) -> Option<Repeat> {
        let identified = packet.has_ip_id();
        let ambiguous = !identified && is_pure_ack(packet);
        if ambiguous && !self.doubled.contains(packet) {
            // Equal ACKs without identification are normal: duplicate ACKs.
            return None;
        }
        let stream = 2 * context.stream.0 + context.stream.1 as u64;
        let fingerprint = fingerprint ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = (fingerprint >> 32) as usize % BUCKETS;
        let received = context.received as u32;
        let doubled = &self.doubled;
        let earlier = self.buckets[index].find(packet, fingerprint, received, |earlier| {
            earlier.interface != packet.interface
                || context.at_sender && (identified || received == earlier.received)
                || doubled.contains(packet)
        })?;
        let perhaps_sent = earlier.interface == packet.interface
            && context.at_sender
            && packet.payload_len > 0
            && !doubled.contains(packet);
        Some(match perhaps_sent {
            true => Repeat::PerhapsSent,
            false => Repeat::Captured,
        })
    }
}

fn is_pure_ack(packet: &Packet) -> bool {
    packet.payload_len == 0 && !packet.flags.syn && !packet.flags.fin
}

impl RecentPackets {
    /// Returns an equal packet that was seen shortly before and that `is_same` accepts. Otherwise
    /// stores this one.
    #[inline]
    fn find(
        &mut self,
        packet: &Packet,
        fingerprint: u64,
        received: u32,
        is_same: impl Fn(&RecentPacket) -> bool,
    ) -> Option<RecentPacket> {
        let limit = if packet.has_ip_id() {
            SAME_PACKET_NS
        } else {
            SAME_PACKET_STRICT_NS
        };
        // There is rarely a match, so a branchless check is faster.
        let known = |found, &other| found | (other == fingerprint);
        let is_known = self.fingerprints.iter().fold(false, known);
        let mut equal = iter::zip(&self.fingerprints, &self.seen)
            .filter(|_| is_known)
            .filter(|(other, _)| **other == fingerprint)
            .map(|(_, earlier)| earlier);
        let is_same = |earlier: &&RecentPacket| {
            packet.at_ns.abs_diff(earlier.at_ns) <= limit && is_same(earlier)
        };
        let seen = equal.find(is_same).copied();
        if seen.is_none() {
            let index = self.next % self.fingerprints.len();
            self.fingerprints[index] = fingerprint;
            self.seen[index] = RecentPacket {
                at_ns: packet.at_ns,
                interface: packet.interface,
                received,
            };
            self.next = index + 1;
        }
        seen
    }
}

/// Links that show every packet twice.
#[derive(Debug, Default)]
pub(crate) struct DoubledLinks {
    /// All links.
    all: bool,
    /// Addresses of sender and receiver.
    some: HashSet<([u8; 16], [u8; 16]), RandomState>,
}

/// A link with fewer packets is not known to be doubled.
const MIN_LINK_PACKETS: u32 = 10;

#[derive(Debug, Clone, Copy, Default)]
struct LinkCounts {
    /// Packets without and with payload.
    packets: [u32; 2],
    /// Packets that repeat another one, without and with payload.
    repeats: [u32; 2],
    /// ACKs that report a duplicate (RFC 2883).
    reports: u32,
}

impl LinkCounts {
    fn count(&mut self, is_repeat: bool, has_payload: bool) {
        self.packets[usize::from(has_payload)] += 1;
        self.repeats[usize::from(has_payload)] += u32::from(is_repeat);
    }

    fn sum(self, other: &Self) -> Self {
        let sum = |of: fn(&Self) -> [u32; 2]| [0, 1].map(|it| of(&self)[it] + of(other)[it]);
        Self {
            packets: sum(|it| it.packets),
            repeats: sum(|it| it.repeats),
            reports: self.reports + other.reports,
        }
    }

    /// Whether the capture shows every packet twice: also those without payload, and the receiver
    /// reports few of them.
    fn is_doubled(&self) -> bool {
        // Half of the packets are repeats, except those missing in the trace.
        let are_repeated = |packets: u32, repeats: u32| repeats * 20 >= packets * 9;
        let packets = self.packets[0] + self.packets[1];
        let repeats = self.repeats[0] + self.repeats[1];
        packets >= MIN_LINK_PACKETS
            && are_repeated(packets, repeats)
            && are_repeated(self.packets[0], self.repeats[0])
            && self.reports * 4 < repeats
    }
}

impl DoubledLinks {
    /// Finds them among a trace's first packets.
    pub(crate) fn new<'a>(lead: impl Iterator<Item = &'a Packet>) -> Self {
        let mut recent = vec![RecentPackets::default(); BUCKETS];
        let mut links: HashMap<_, LinkCounts, RandomState> = HashMap::default();
        for packet in lead {
            let fingerprint = fingerprint(packet);
            let bucket = &mut recent[(fingerprint >> 32) as usize % BUCKETS];
            let is_repeat = bucket.find(packet, fingerprint, 0, |_| true).is_some();
            let (from, to) = (packet.from.address, packet.to.address);
            let link = links.entry((from, to)).or_default();
            link.count(is_repeat, packet.payload_len > 0);
            if packet.reports_duplicate() {
                links.entry((to, from)).or_default().reports += 1;
            }
        }
        let all = links.values().fold(LinkCounts::default(), LinkCounts::sum);
        Self {
            all: all.is_doubled(),
            some: links
                .into_iter()
                .filter(|(_, link)| link.is_doubled())
                .map(|(link, _)| link)
                .collect(),
        }
    }

    #[inline]
    fn contains(&self, packet: &Packet) -> bool {
        self.all
            || !self.some.is_empty()
                && self
                    .some
                    .contains(&(packet.from.address, packet.to.address))
    }
}
