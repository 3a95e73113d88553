//! Hosts at both traces: their addresses, their places, and what the first packets show of their clocks.

use std::collections::{HashMap, HashSet, VecDeque};

use foldhash::fast::RandomState;

use super::Printed;
use crate::connection::Connection;
use crate::packet::{Endpoint, Packet};

/// What the trace at the sender calls the addresses and ports that the trace at the receiver
/// shows.
#[derive(Debug, Default)]
pub(crate) struct Nat {
    /// Changed addresses that were given: the one at the receiver, the one at the sender.
    addresses: Vec<([u8; 16], [u8; 16])>,
    /// Changed ends that were found: both at the receiver, both at the sender.
    found: HashMap<Endpoints, Endpoints, RandomState>,
    /// The last packets at the sender of connections that were new there.
    announced: HashMap<u64, Endpoints, RandomState>,
    order: VecDeque<u64>,
}

type Endpoints = (Endpoint, Endpoint);

/// New connections that may wait at one time for the trace at the receiver to show them.
const MOST_ANNOUNCED: usize = 16_384;

impl Nat {
    pub(crate) fn new(addresses: Vec<([u8; 16], [u8; 16])>) -> Self {
        Self {
            addresses,
            ..Self::default()
        }
    }

    /// Whether any addresses or ports are known to differ.
    #[inline]
    pub(crate) fn translates(&self) -> bool {
        !(self.found.is_empty() && self.addresses.is_empty())
    }

    /// A packet of the receiver's trace with the addresses and ports that it has in the
    /// sender's, as far as is known.
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

    /// Remembers a packet of the sender's trace, by its fingerprint, to know it again under
    /// other addresses.
    pub(crate) fn announce(&mut self, print: u64, packet: &Packet) {
        if self
            .announced
            .insert(print, (packet.from, packet.to))
            .is_none()
        {
            self.order.push_back(print);
        }
        if self.order.len() > MOST_ANNOUNCED
            && let Some(oldest) = self.order.pop_front()
        {
            self.announced.remove(&oldest);
        }
    }

    /// Whether a packet of the receiver's trace, one that is unknown there, was announced under
    /// other addresses; they are taken for its own from then on.
    pub(crate) fn recognise(&mut self, print: u64, packet: &Packet) -> bool {
        let there = (packet.from, packet.to);
        match self.announced.get(&print) {
            Some(&here) if here != there => {
                self.link(there, here);
                true
            }
            _ => false,
        }
    }

    /// Says that these ends at the receiver are those at the sender.
    pub(crate) fn link(&mut self, there: Endpoints, here: Endpoints) {
        self.found.insert(there, here);
        self.found.insert((there.1, there.0), (here.1, here.0));
    }

    /// Pairs of ends that were found to differ.
    pub(crate) fn translations(&self) -> usize {
        self.found
            .iter()
            .filter(|(there, here)| there != here)
            .count()
            / 2
    }
}

/// Which hosts are at which trace, by their addresses at the sender's, as the connections tell that
/// both traces show.
#[derive(Debug, Default)]
pub(crate) struct Places {
    near: HashSet<[u8; 16]>,
    far: HashSet<[u8; 16]>,
}

impl Places {
    /// Says that packets from one end to another show first at the sender's trace.
    pub(crate) fn add(&mut self, from: Endpoint, to: Endpoint) {
        self.near.insert(from.address);
        self.far.insert(to.address);
    }

    /// 1 at the sender's trace, -1 at the receiver's, 0 if that is not known.
    fn nearness(&self, end: Endpoint) -> i8 {
        let (near, far) = (&self.near, &self.far);
        i8::from(near.contains(&end.address)) - i8::from(far.contains(&end.address))
    }

    /// Whether the originator is the end that is at the receiver's trace, or closer to it than the
    /// other.
    pub(crate) fn is_reversed(&self, connection: &Connection) -> bool {
        self.nearness(connection.originator) < self.nearness(connection.responder)
    }

    /// Whether its ends are hosts at either trace.
    pub(crate) fn are_ends_of(&self, connection: &Connection) -> bool {
        let ends = [connection.originator, connection.responder].map(|end| self.nearness(end));
        ends.contains(&1) && ends.contains(&-1)
    }
}

/// So many packets of each trace are looked at.
pub(crate) const LEAD_PACKETS: usize = 20_000;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Lead {
    /// By how much the receiver's clock is ahead, if packets were found in both traces.
    pub(crate) offset_ns: Option<i64>,
    /// Both ends at the receiver's trace, both ends at the sender's.
    pub(crate) ends: Vec<(Endpoints, Endpoints)>,
    /// Which hosts are where.
    pub(crate) places: Places,
}

/// One direction of a connection in both traces.
#[derive(Debug)]
struct Common {
    /// The connection's ends at the receiver's trace.
    there: Endpoints,
    /// How much later the receiver's clock showed each of its packets, in order.
    later_ns: Vec<i64>,
}

impl Lead {
    pub(crate) fn of(sender: &[Printed], receiver: &[Printed]) -> Self {
        let mut lead = Self::default();
        let directions = common(sender, receiver);
        // What later shows at the receiver than its reverse does, by one clock, goes there; the
        // clocks' offset is the same both ways and falls out.
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
                lead.places.add(here.0, here.1);
                // No packet is quicker than the clocks allow, but what seems so for it was taken
                // for an earlier one.
                let quickest = direction.later_ns.iter().find(|ns| **ns > usual_back_ns);
                let quickest_back = reverse.later_ns.iter().rfind(|ns| **ns < usual_ns);
                if let Some((&quickest, &quickest_back)) = quickest.zip(quickest_back) {
                    there_ns = Some(there_ns.map_or(quickest, |least| least.min(quickest)));
                    back_ns = Some(back_ns.map_or(quickest_back, |most| most.max(quickest_back)));
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

impl Common {
    /// The median: a trace that begins midway misses packets, and a retransmission may be taken
    /// for the first sending of what arrived before.
    fn usual_ns(&self) -> i64 {
        let middle = self.later_ns.get(self.later_ns.len() / 2);
        middle.copied().unwrap_or_default()
    }
}

/// Each direction that both traces show, by its ends at the sender's.
fn common(sender: &[Printed], receiver: &[Printed]) -> HashMap<Endpoints, Common, RandomState> {
    let mut known: HashMap<u64, Option<&Packet>, RandomState> = HashMap::default();
    for Printed { packet, print } in sender {
        known
            .entry(*print)
            .and_modify(|known| *known = None)
            .or_insert(Some(packet));
    }
    let mut directions: HashMap<Endpoints, Common, RandomState> = HashMap::default();
    for Printed { packet, print } in receiver {
        // A fingerprint that was sent twice says nothing, and one that arrives twice no more
        // than once.
        let Some(Some(same)) = known.insert(*print, None) else {
            continue;
        };
        let there = (packet.from, packet.to);
        let direction = directions.entry((same.from, same.to)).or_insert(Common {
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
