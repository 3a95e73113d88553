//! Queueing disciplines may split packets of several segments (`tbf`, `cake`), or copy them to
//! change them (`netem`): others come forth in the place of what was offered.

use std::collections::HashMap;

use crate::queue::{Endpoints, Fate, Packet};

/// Packets to be brought together: those offered that may have been split, and those that were
/// not seen to arrive.
#[derive(Debug, Default)]
pub(super) struct Split {
    whole: HashMap<Endpoints, Vec<Packet>>,
    parts: HashMap<Endpoints, Vec<Packet>>,
}

impl Split {
    /// Takes a packet that may have been split, or be a part of one that was, for
    /// [`resolve`](Self::resolve); true if it did.
    pub(super) fn keep(&mut self, packet: &Packet) -> bool {
        let Some(ends) = packet.ends.filter(|_| packet.payload > 0) else {
            return false;
        };
        let refused_whole = packet.fate == Fate::Refused && packet.segments > 1;
        let kept = if packet.arrived_ns.is_none() {
            &mut self.parts
        } else if packet.fate == Fate::Replaced || refused_whole {
            &mut self.whole
        } else {
            return false;
        };
        kept.entry(ends).or_default().push(*packet);
        true
    }

    /// The packets as the queue sent or dropped them. Each segment has the arrival of the last
    /// packet before it that covers it; what was split is left out itself.
    pub(super) fn resolve(mut self) -> Vec<Packet> {
        let mut packets = Vec::new();
        for (ends, mut whole) in self.whole {
            whole.sort_by_key(|packet| packet.arrived_ns);
            let mut was_split = vec![false; whole.len()];
            for part in self.parts.remove(&ends).unwrap_or_default() {
                let before = whole.partition_point(|packet| packet.arrived_ns <= part.left_ns);
                let mut earlier = whole.iter().enumerate().take(before).rev();
                let found = earlier.find(|(_, packet)| covers(packet, &part));
                packets.push(found.map_or(part, |(_, packet)| Packet {
                    arrived_ns: packet.arrived_ns,
                    found: packet.found,
                    ..part
                }));
                if let Some((place, _)) = found {
                    was_split[place] = true;
                }
            }
            let left = whole.iter().zip(was_split).filter(|(_, split)| !split);
            packets.extend(left.map(|(packet, _)| *packet));
        }
        packets.extend(self.parts.into_values().flatten());
        packets.sort_by_key(|packet| (packet.left_ns, packet.ends, packet.seq));
        packets
    }
}

/// True if the payload of `whole` covers that of `part`; sequence numbers wrap.
fn covers(whole: &Packet, part: &Packet) -> bool {
    part.seq.wrapping_sub(whole.seq) < whole.payload
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(arrived_ns: Option<u64>, left_ns: Option<u64>, seq: u32, payload: u32) -> Packet {
        let end = |port| std::net::SocketAddr::from(([10, 0, 0, 1], port));
        Packet {
            arrived_ns,
            left_ns,
            fate: left_ns.map_or(Fate::Replaced, |_| Fate::Sent),
            reason: 0,
            ends: Some(Endpoints {
                protocol: 6,
                source: end(1),
                destination: end(2),
            }),
            seq,
            payload,
            flags: 16,
            size: payload + 66,
            counted: payload + 66,
            segments: 1,
            queue: 0,
            found: None,
            behind: None,
        }
    }

    #[test]
    fn segments_have_the_arrival_of_what_was_split_and_are_counted_in_its_place() {
        let mut split = Split::default();
        // Sent, and later retransmitted; the numbers wrap within it.
        let seq = u32::MAX - 999;
        for packet in [
            packet(Some(10), None, seq, 2000),
            packet(None, Some(20), seq, 1000),
            packet(None, Some(30), 0, 1000),
            packet(Some(40), None, seq, 2000),
            packet(None, Some(50), 0, 1000),
        ] {
            assert!(split.keep(&packet));
        }
        let found: Vec<_> = split
            .resolve()
            .iter()
            .map(|it| (it.arrived_ns, it.left_ns))
            .collect();
        let times = [(10, 20), (10, 30), (40, 50)];
        assert_eq!(
            found,
            times.map(|(arrived, left)| (Some(arrived), Some(left)))
        );
    }

    #[test]
    fn what_nothing_came_of_and_what_came_of_nothing_is_kept() {
        let mut split = Split::default();
        let still_there = packet(Some(10), None, 5000, 1000);
        let older = packet(None, Some(20), 1000, 1000);
        assert!(split.keep(&still_there) && split.keep(&older));
        assert_eq!(split.resolve(), [still_there, older]);
        assert!(!Split::default().keep(&packet(Some(10), Some(20), 0, 100)));
    }
}
