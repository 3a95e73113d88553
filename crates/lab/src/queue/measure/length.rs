use std::collections::HashMap;

use serde::Serialize;

use super::Quantiles;
use crate::queue::{Fate, Packet};

/// How long the queue was, every moment counting alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct LengthOverTime {
    /// The queue's length in packets.
    pub packets: Quantiles,
    /// The queue's length in bytes, as the queueing disciplines count them.
    pub bytes: Quantiles,
}

/// The queue's length from one moment on.
#[derive(Debug, Clone, Copy)]
struct Step {
    at_ns: u64,
    queue: u16,
    /// Packets and bytes in the queue, or, where the discipline does not tell, more of them than
    /// before.
    size: [i64; 2],
    absolute: bool,
}

/// Follows the queue's length by what the queueing discipline itself says; where that does not
/// tell, by counting packets in and out.
#[derive(Debug, Default)]
pub(super) struct Lengths(Vec<Step>);

impl Lengths {
    pub(super) fn add(&mut self, packet: &Packet) {
        let stays = packet.fate == Fate::Sent || packet.fate == Fate::Dropped;
        let own = match stays {
            true => [1, i64::from(packet.counted)],
            false => [0, 0],
        };
        let mut step = |at_ns: Option<u64>, size: [i64; 2], absolute| {
            let queue = packet.queue;
            self.0.extend(at_ns.map(|at_ns| Step {
                at_ns,
                queue,
                size,
                absolute,
            }));
        };
        match packet.found {
            Some(found) => {
                let found = [found.packets, found.bytes].map(i64::from);
                step(
                    packet.arrived_ns,
                    [found[0] + own[0], found[1] + own[1]],
                    true,
                );
                let behind = packet
                    .behind
                    .map(|it| [it.packets, it.bytes].map(i64::from));
                step(
                    packet.left_ns.and(behind).and(packet.left_ns),
                    behind.unwrap_or_default(),
                    true,
                );
            }
            None if packet.arrived_ns.is_some() => {
                step(packet.arrived_ns, own, false);
                step(packet.left_ns, own.map(|size| -size), false);
            }
            None => {}
        }
    }

    pub(super) fn close(mut self) -> LengthOverTime {
        self.0.sort_by_key(|step| step.at_ns);
        let mut queues: HashMap<u16, [i64; 2]> = HashMap::new();
        let mut all = [0, 0];
        let mut spent: [HashMap<u64, u64>; 2] = Default::default();
        let ends = self.0.iter().skip(1).map(|step| step.at_ns);
        for (step, end_ns) in self.0.iter().zip(ends) {
            let queue = queues.entry(step.queue).or_default();
            for which in [0, 1] {
                let base = if step.absolute { 0 } else { queue[which] };
                let now = base + step.size[which];
                all[which] += now - queue[which];
                queue[which] = now;
                let length = all[which].max(0).cast_unsigned();
                *spent[which].entry(length).or_default() += end_ns - step.at_ns;
            }
        }
        let [packets, bytes] = spent.map(|spent| {
            let mut spent: Vec<_> = spent.into_iter().collect();
            spent.sort_unstable();
            let lasting = spent.iter().filter(|(_, ns)| *ns > 0).copied();
            Quantiles::weighted(&lasting.collect::<Vec<_>>(), 1.0)
        });
        LengthOverTime { packets, bytes }
    }
}
