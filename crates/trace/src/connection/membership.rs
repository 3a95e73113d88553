//! Assigns packets to connections with the same addresses and ports, and detects packets that a
//! trace shows twice.

use std::collections::{HashMap, HashSet};
use std::iter;

use foldhash::fast::RandomState;

use super::half::HalfConnection;
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
/// so soon. Where it arrived, they are two: a path that duplicates packets does so only to some.
/// Exceptions are links that show every packet twice.
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

/// Two devices of one host show a packet within this time. A retransmission takes longer and has
/// another IP identification.
const SAME_PACKET_NS: u64 = 1_000_000;

/// The same without IP identification, or on one interface. No timeout and no thin stream is this
/// fast.
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

    /// Whether the trace shows a packet with this fingerprint a second time.
    #[inline]
    pub(crate) fn is_repeat(
        &mut self,
        packet: &Packet,
        fingerprint: u64,
        context: &CaptureContext,
    ) -> bool {
        let identified = packet.has_ip_id();
        let ambiguous = !identified && is_pure_ack(packet);
        if ambiguous && !self.doubled.contains(packet) {
            // Equal ACKs without identification are normal: duplicate ACKs.
            return false;
        }
        let stream = 2 * context.stream.0 + context.stream.1 as u64;
        let fingerprint = fingerprint ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = (fingerprint >> 32) as usize % BUCKETS;
        let received = context.received as u32;
        let doubled = &self.doubled;
        self.buckets[index].is_repeat(packet, fingerprint, received, |earlier| {
            earlier.interface != packet.interface
                || context.at_sender
                    && packet.at_ns.abs_diff(earlier.at_ns) <= SAME_PACKET_STRICT_NS
                    && (identified || received == earlier.received)
                || doubled.contains(packet)
        })
    }
}

fn is_pure_ack(packet: &Packet) -> bool {
    packet.payload_len == 0 && !packet.flags.syn && !packet.flags.fin
}

impl RecentPackets {
    /// Whether an equal packet was seen shortly before, and is the same by `is_same`.
    #[inline]
    fn is_repeat(
        &mut self,
        packet: &Packet,
        fingerprint: u64,
        received: u32,
        is_same: impl Fn(&RecentPacket) -> bool,
    ) -> bool {
        let limit = if packet.has_ip_id() {
            SAME_PACKET_NS
        } else {
            SAME_PACKET_STRICT_NS
        };
        // There is rarely a match, so a branchless check is faster.
        let known = |found, &other| found | (other == fingerprint);
        let seen = self.fingerprints.iter().fold(false, known)
            && iter::zip(&self.fingerprints, &self.seen).any(|(&other, earlier)| {
                other == fingerprint
                    && packet.at_ns.abs_diff(earlier.at_ns) <= limit
                    && is_same(earlier)
            });
        if !seen {
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

impl DoubledLinks {
    /// Finds them among a trace's first packets.
    pub(crate) fn new<'a>(lead: impl Iterator<Item = &'a Packet>) -> Self {
        let mut recent = vec![RecentPackets::default(); BUCKETS];
        let mut links: HashMap<_, (u32, u32), RandomState> = HashMap::default();
        for packet in lead {
            let fingerprint = fingerprint(packet);
            let bucket = &mut recent[(fingerprint >> 32) as usize % BUCKETS];
            let is_repeat = bucket.is_repeat(packet, fingerprint, 0, |_| true);
            let link = links.entry((packet.from.address, packet.to.address));
            let (packets, repeats) = link.or_default();
            *packets += 1;
            *repeats += u32::from(is_repeat);
        }
        // Half of the packets are copies, except those missing in the trace.
        let is_doubled =
            |packets: u32, repeats: u32| packets >= MIN_LINK_PACKETS && repeats * 20 >= packets * 9;
        let sum = |of: fn(&(u32, u32)) -> u32| links.values().map(of).sum();
        Self {
            all: is_doubled(sum(|it| it.0), sum(|it| it.1)),
            some: links
                .into_iter()
                .filter(|(_, (packets, repeats))| is_doubled(*packets, *repeats))
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
