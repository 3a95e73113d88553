//! Losses of a stream, and repairs by bundles, counted from captured segments alone.

use std::collections::HashMap;
use std::ops::AddAssign;

use super::capture::CapturedSegment;

/// Returns whether each sent packet arrived, given all arrived packets. Packets are matched by
/// ports, identification, sequence number and length. Among equal packets, those sent first count
/// as arrived.
pub fn arrivals(sent: &[CapturedSegment], arrived: &[CapturedSegment]) -> Vec<bool> {
    let key =
        |captured: &CapturedSegment| (captured.ports, captured.id, captured.seq, captured.payload);
    let mut open: HashMap<_, u32> = HashMap::new();
    for packet in arrived {
        *open.entry(key(packet)).or_default() += 1;
    }
    let mut take = |packet: &CapturedSegment| match open.get_mut(&key(packet)) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    };
    sent.iter().map(&mut take).collect()
}

/// Losses of a stream's segments, and repairs of these losses by bundles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// Sent segments.
    pub segments: u64,
    /// Lost segments with new data.
    pub lost: u64,
    /// Lost segments whose new data arrived first in a bundle.
    pub repaired: u64,
}

impl AddAssign for LossCounts {
    fn add_assign(&mut self, other: Self) {
        self.segments += other.segments;
        self.lost += other.lost;
        self.repaired += other.repaired;
    }
}

struct Segment {
    /// Offset of the segment's first byte from the first byte of the stream.
    start: u32,
    end: u32,
    /// Offset of the segment's new data; at or after `end` if it has none.
    new: u32,
    arrived: bool,
}

impl Segment {
    fn is_bundle(&self) -> bool {
        self.start < self.new && self.new < self.end
    }
}

impl LossCounts {
    /// Counts the segments of one stream below 4 GiB, captured on both sides of a path that
    /// preserves the order.
    pub fn of(sent: &[CapturedSegment], arrived: &[CapturedSegment]) -> Self {
        let mut loss_counts = Self::default();
        let segments = segments(sent, arrived);
        for (index, lost) in segments.iter().enumerate() {
            loss_counts.segments += 1;
            if lost.arrived || lost.new >= lost.end {
                continue;
            }
            loss_counts.lost += 1;
            let mut later = segments[index + 1..].iter();
            let covers = |s: &&Segment| s.arrived && s.start <= lost.new && s.end >= lost.end;
            loss_counts.repaired += u64::from(later.find(covers).is_some_and(Segment::is_bundle));
        }
        loss_counts
    }
}

fn segments(sent: &[CapturedSegment], arrived: &[CapturedSegment]) -> Vec<Segment> {
    let first = sent.first().map_or(0, |captured| captured.seq);
    let mut top = 0;
    let arrivals = arrivals(sent, arrived).into_iter();
    let segment = |(captured, arrived): (&CapturedSegment, bool)| {
        let start = captured.seq.wrapping_sub(first);
        let end = start.saturating_add(captured.payload.into());
        let new = start.max(top);
        top = top.max(end);
        Segment {
            start,
            end,
            new,
            arrived,
        }
    };
    sent.iter().zip(arrivals).map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds segments from start and end, with increasing identification. A bundle starts before
    /// the end of the previous segment.
    fn segments(list: &[(u32, u32)]) -> Vec<CapturedSegment> {
        let segment = |(id, (start, end)): (u16, &(u32, u32))| CapturedSegment {
            ports: [1, 2],
            id,
            seq: (u32::MAX - 150).wrapping_add(*start),
            payload: (end - start) as u16,
        };
        (0..).zip(list).map(segment).collect()
    }

    fn loss_counts(list: &[(u32, u32)], lost: &[usize]) -> LossCounts {
        let sent = segments(list);
        let arrived = |(index, _): &(usize, &CapturedSegment)| !lost.contains(index);
        let arrived = sent.iter().enumerate().filter(arrived);
        let arrived: Vec<CapturedSegment> = arrived.map(|(_, captured)| *captured).collect();
        LossCounts::of(&sent, &arrived)
    }

    #[test]
    fn loss_is_repaired_by_first_bundle_that_covers_it() {
        let list = [(0, 100), (0, 200), (0, 300), (300, 400)];
        let repaired = |lost: &[usize]| loss_counts(&list, lost).repaired;
        assert_eq!(repaired(&[]), 0);
        assert_eq!(repaired(&[0]), 1);
        assert_eq!(repaired(&[0, 1]), 2);
        // No later segment covers the third and the last.
        assert_eq!(loss_counts(&list, &[2, 3]).lost, 2);
        assert_eq!(repaired(&[2, 3]), 0);
    }

    #[test]
    fn loss_repaired_by_retransmission_is_not_counted_for_bundles() {
        let list = [(0, 100), (100, 200), (0, 100), (0, 300)];
        let loss_counts = loss_counts(&list, &[0, 2]);
        assert_eq!(
            (loss_counts.segments, loss_counts.lost, loss_counts.repaired),
            (4, 1, 1)
        );
        assert_eq!(self::loss_counts(&list, &[0]).repaired, 0);
    }

    fn packet(id: u16, seq: u32) -> CapturedSegment {
        CapturedSegment {
            ports: [1, 2],
            id,
            seq,
            payload: 100,
        }
    }

    #[test]
    fn missing_packet_is_lost_and_equal_copies_are_distinguished() {
        let sent = [packet(1, 0), packet(2, 100), packet(3, 0), packet(3, 0)];
        let arrived = [packet(2, 100), packet(3, 0)];
        assert_eq!(arrivals(&sent, &arrived), [false, true, true, false]);
    }
}
