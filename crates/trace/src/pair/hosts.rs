//! Hosts at both traces: addresses, sides, and the clock offset of the first packets.

use std::collections::{HashMap, HashSet, VecDeque};

use foldhash::fast::RandomState;

use crate::connection::Connection;
use crate::packet::{Endpoint, Packet};
use crate::source::FingerprintedPacket;

/// Translates addresses and ports of the receiver's trace to those of the sender's.
#[derive(Debug, Default)]
pub(crate) struct Nat {
    /// Given translations: address at the receiver, address at the sender.
    addresses: Vec<([u8; 16], [u8; 16])>,
    /// Found translations: both ends at the receiver, both at the sender.
    found: HashMap<Endpoints, Endpoints, RandomState>,
    /// Packets of new connections at the sender, by fingerprint.
    announced: HashMap<u64, Endpoints, RandomState>,
    order: VecDeque<u64>,
}

type Endpoints = (Endpoint, Endpoint);

/// Maximum number of new connections that wait for the receiver's trace.
const MAX_ANNOUNCED: usize = 16_384;

impl Nat {
    pub(crate) fn new(addresses: Vec<([u8; 16], [u8; 16])>) -> Self {
        Self {
            addresses,
            ..Self::default()
        }
    }

    /// Whether any translation is known.
    #[inline]
    pub(crate) fn translates(&self) -> bool {
        !(self.found.is_empty() && self.addresses.is_empty())
    }

    /// A packet of the receiver's trace with its addresses and ports in the sender's, if known.
    pub(crate) fn translate(&self, packet: &Packet) -> Packet {
        let (mut from, mut to) = (packet.from, packet.to);
        if let Some(&found) = self.found.get(&(from, to)) {
            (from, to) = found;
        } else {
            for end in [&mut from, &mut to] {
                let given = self
                    .addresses
                    .iter()
                    .find(|(there, _)| end.address == *there);
                end.address = given.map_or(end.address, |&(_, here)| here);
            }
        }
        Packet {
            from,
            to,
            ..*packet
        }
    }

    /// Stores a packet of the sender's trace by its fingerprint, to recognise it under other
    /// addresses.
    pub(crate) fn announce(&mut self, fingerprint: u64, packet: &Packet) {
        if self
            .announced
            .insert(fingerprint, (packet.from, packet.to))
            .is_none()
        {
            self.order.push_back(fingerprint);
        }
        if self.order.len() > MAX_ANNOUNCED
            && let Some(oldest) = self.order.pop_front()
        {
            self.announced.remove(&oldest);
        }
    }

    /// Whether an unknown packet of the receiver's trace was announced under other addresses. If
    /// so, the translation is stored.
    pub(crate) fn recognise(&mut self, fingerprint: u64, packet: &Packet) -> bool {
        let there = (packet.from, packet.to);
        match self.announced.get(&fingerprint) {
            Some(&here) if here != there => {
                self.link(there, here);
                true
            }
            _ => false,
        }
    }

    /// Stores that these ends at the receiver are those at the sender.
    pub(crate) fn link(&mut self, there: Endpoints, here: Endpoints) {
        self.found.insert(there, here);
        self.found.insert((there.1, there.0), (here.1, here.0));
    }

    /// Number of translated pairs of ends.
    pub(crate) fn translations(&self) -> usize {
        self.found
            .iter()
            .filter(|(there, here)| there != here)
            .count()
            / 2
    }
}

/// Hosts at each trace, by their addresses in the sender's, from connections that both traces show.
#[derive(Debug, Default)]
pub(crate) struct HostSides {
    near: HashSet<[u8; 16]>,
    far: HashSet<[u8; 16]>,
}

impl HostSides {
    /// Records that packets between these ends appear first in the sender's trace.
    pub(crate) fn add(&mut self, from: Endpoint, to: Endpoint) {
        self.near.insert(from.address);
        self.far.insert(to.address);
    }

    /// 1 at the sender's trace, -1 at the receiver's, 0 if unknown.
    fn side_of(&self, end: Endpoint) -> i8 {
        let (near, far) = (&self.near, &self.far);
        i8::from(near.contains(&end.address)) - i8::from(far.contains(&end.address))
    }

    /// Whether the originator is at the receiver's trace, or closer to it than the responder.
    pub(crate) fn is_reversed(&self, connection: &Connection) -> bool {
        self.side_of(connection.originator) < self.side_of(connection.responder)
    }

    /// Whether its ends are hosts at the two traces.
    pub(crate) fn spans_both_traces(&self, connection: &Connection) -> bool {
        let ends = [connection.originator, connection.responder].map(|end| self.side_of(end));
        ends.contains(&1) && ends.contains(&-1)
    }
}

/// An equal packet within this time is the same, captured twice.
const CAPTURED_TWICE_NS: u64 = 100_000;

/// Number of first packets of each trace that are compared.
pub(crate) const LEAD_PACKETS: usize = 20_000;

/// Results from the first packets.
#[derive(Debug, Default)]
pub(crate) struct LeadPackets {
    /// Offset of the receiver's clock, if both traces share packets.
    pub(crate) offset_ns: Option<i64>,
    /// Both ends in the receiver's trace, both ends in the sender's.
    pub(crate) ends: Vec<(Endpoints, Endpoints)>,
    /// Hosts at each trace.
    pub(crate) host_sides: HostSides,
}

/// One direction of a connection in both traces.
#[derive(Debug)]
struct CommonDirection {
    /// The connection's ends at the receiver's trace.
    there: Endpoints,
    /// Differences of capture times at the receiver and the sender, per packet, sorted.
    later_ns: Vec<i64>,
}

impl LeadPackets {
    pub(crate) fn new(sender: &[FingerprintedPacket], receiver: &[FingerprintedPacket]) -> Self {
        let mut lead = Self::default();
        let directions = common_directions(sender, receiver);
        // A direction that appears later at the receiver than its reverse, by one clock, leads to
        // the receiver. The clocks' offset is the same in both directions and cancels.
        let (mut there_ns, mut back_ns) = (None::<i64>, None::<i64>);
        let mut order: Vec<_> = directions.iter().collect();
        order.sort_by_key(|(here, _)| **here);
        for (&here, direction) in order {
            lead.ends.push((direction.there, here));
            let Some(reverse) = directions.get(&(here.1, here.0)) else {
                continue;
            };
            let (usual_ns, usual_back_ns) = (direction.usual_ns(), reverse.usual_ns());
            if usual_ns > usual_back_ns {
                lead.host_sides.add(here.0, here.1);
                // A packet that seems faster than the clocks allow was mistaken for an earlier one.
                let quickest = direction.later_ns.iter().find(|ns| **ns > usual_back_ns);
                let quickest_back = reverse.later_ns.iter().rfind(|ns| **ns < usual_ns);
                if let Some((&quickest, &quickest_back)) = quickest.zip(quickest_back) {
                    there_ns = Some(there_ns.map_or(quickest, |min| min.min(quickest)));
                    back_ns = Some(back_ns.map_or(quickest_back, |max| max.max(quickest_back)));
                }
            }
        }
        lead.offset_ns = match (there_ns, back_ns) {
            (Some(there), Some(back)) => Some((there / 2).saturating_add(back / 2)),
            _ => {
                let later = directions.values().flat_map(|it| it.later_ns.first());
                later.copied().min()
            }
        };
        lead
    }
}

impl CommonDirection {
    /// The median, because a trace that starts midway misses packets, and a retransmission may be
    /// mistaken for an earlier copy.
    fn usual_ns(&self) -> i64 {
        let middle = self.later_ns.get(self.later_ns.len() / 2);
        middle.copied().unwrap_or_default()
    }
}

/// Directions that both traces show, by their ends in the sender's.
fn common_directions(
    sender: &[FingerprintedPacket],
    receiver: &[FingerprintedPacket],
) -> HashMap<Endpoints, CommonDirection, RandomState> {
    let mut known: HashMap<u64, Option<&Packet>, RandomState> = HashMap::default();
    for FingerprintedPacket {
        packet,
        fingerprint,
        ..
    } in sender
    {
        known
            .entry(*fingerprint)
            .and_modify(|known| {
                let is_copy =
                    |first: &&Packet| packet.at_ns.abs_diff(first.at_ns) <= CAPTURED_TWICE_NS;
                *known = known.filter(is_copy);
            })
            .or_insert(Some(packet));
    }
    let mut directions: HashMap<Endpoints, CommonDirection, RandomState> = HashMap::default();
    for FingerprintedPacket {
        packet,
        fingerprint,
        ..
    } in receiver
    {
        // A fingerprint that was sent twice is ambiguous; one that arrives twice counts once.
        let Some(Some(same)) = known.insert(*fingerprint, None) else {
            continue;
        };
        let there = (packet.from, packet.to);
        let direction = directions
            .entry((same.from, same.to))
            .or_insert(CommonDirection {
                there,
                later_ns: Vec::new(),
            });
        if direction.there == there {
            let later_ns = packet.at_ns.saturating_sub(same.at_ns);
            direction.later_ns.push(later_ns);
        }
    }
    for direction in directions.values_mut() {
        direction.later_ns.sort_unstable();
    }
    directions
}
