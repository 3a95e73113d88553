//! What the beginning of two traces tells of their clocks, their places and their addresses.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::places::Places;
use super::source::Printed;
use crate::packet::{Endpoint, Packet};

/// So many packets of each trace are looked at.
pub(crate) const PACKETS: usize = 20_000;

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

type Endpoints = (Endpoint, Endpoint);

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
