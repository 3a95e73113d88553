//! What the beginning of two traces tells of their clocks, their places and their addresses.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

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
    pub(crate) ends: Vec<(Ends, Ends)>,
    /// Addresses, as the sender's trace has them, of hosts near the receiver's.
    pub(crate) far: HashSet<[u8; 16]>,
}

type Ends = (Endpoint, Endpoint);

/// One direction of a connection in both traces: its ends at the receiver's, and how much later
/// the receiver's clock showed its packets, at least and at most.
#[derive(Debug, Clone, Copy)]
struct Way {
    there: Ends,
    least_ns: i64,
    most_ns: i64,
}

impl Lead {
    pub(crate) fn of(sender: &[Printed], receiver: &[Printed]) -> Self {
        let mut lead = Self::default();
        let ways = ways(sender, receiver);
        // What later shows at the receiver than its reverse does, by one clock, goes there; the
        // clocks' offset is the same both ways and falls out.
        let (mut there_ns, mut back_ns) = (None::<i64>, None::<i64>);
        let mut order: Vec<_> = ways.iter().collect();
        order.sort_by_key(|(here, _)| **here);
        for (&here, way) in order {
            lead.ends.push((way.there, here));
            let Some(reverse) = ways.get(&(here.1, here.0)) else {
                continue;
            };
            if way.least_ns > reverse.least_ns {
                lead.far.insert(here.1.address);
                there_ns = Some(there_ns.map_or(way.least_ns, |least| least.min(way.least_ns)));
                back_ns = Some(back_ns.map_or(reverse.most_ns, |most| most.max(reverse.most_ns)));
            }
        }
        lead.offset_ns = match (there_ns, back_ns) {
            (Some(there), Some(back)) => Some((there / 2).saturating_add(back / 2)),
            _ => ways.values().map(|way| way.least_ns).min(),
        };
        lead
    }
}

/// Each direction that both traces show, by its ends at the sender's.
fn ways(sender: &[Printed], receiver: &[Printed]) -> HashMap<Ends, Way, RandomState> {
    let mut known: HashMap<u64, Option<&Packet>, RandomState> = HashMap::default();
    for Printed { packet, print } in sender {
        known
            .entry(*print)
            .and_modify(|known| *known = None)
            .or_insert(Some(packet));
    }
    let mut ways: HashMap<Ends, Way, RandomState> = HashMap::default();
    for Printed { packet, print } in receiver {
        // A fingerprint that was sent twice says nothing, and one that arrives twice no more
        // than once.
        let Some(Some(same)) = known.insert(*print, None) else {
            continue;
        };
        let later_ns = packet.at_ns.saturating_sub(same.at_ns);
        let there = (packet.from, packet.to);
        let way = ways.entry((same.from, same.to)).or_insert(Way {
            there,
            least_ns: later_ns,
            most_ns: later_ns,
        });
        if way.there == there {
            way.least_ns = way.least_ns.min(later_ns);
            way.most_ns = way.most_ns.max(later_ns);
        }
    }
    ways
}
