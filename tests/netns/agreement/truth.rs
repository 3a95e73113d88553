use std::ops::AddAssign;

use super::fate::fates;
use super::watch::Seen;

/// Losses of a stream's segments, and repairs of these losses by bundles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Truth {
    /// Sent segments.
    pub segments: u64,
    /// Lost segments with new data.
    pub lost: u64,
    /// Lost segments whose new data arrived first in a bundle.
    pub repaired: u64,
}

impl AddAssign for Truth {
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

impl Truth {
    /// Counts the segments of one stream below 4 GiB, captured on both sides of a path that
    /// preserves the order.
    pub fn of(sent: &[Seen], arrived: &[Seen]) -> Self {
        let mut truth = Self::default();
        let segments = segments(sent, arrived);
        for (place, lost) in segments.iter().enumerate() {
            truth.segments += 1;
            if lost.arrived || lost.new >= lost.end {
                continue;
            }
            truth.lost += 1;
            let mut later = segments[place + 1..].iter();
            let brings = |s: &&Segment| s.arrived && s.start <= lost.new && s.end >= lost.end;
            truth.repaired += u64::from(later.find(brings).is_some_and(Segment::is_bundle));
        }
        truth
    }
}

fn segments(sent: &[Seen], arrived: &[Seen]) -> Vec<Segment> {
    let first = sent.first().map_or(0, |seen| seen.seq);
    let mut top = 0;
    let fates = fates(sent, arrived).into_iter();
    let segment = |(seen, arrived): (&Seen, bool)| {
        let start = seen.seq.wrapping_sub(first);
        let end = start.saturating_add(seen.payload.into());
        let new = start.max(top);
        top = top.max(end);
        Segment {
            start,
            end,
            new,
            arrived,
        }
    };
    sent.iter().zip(fates).map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds segments from start and end, with increasing identification. A bundle starts before
    /// the end of the previous segment.
    fn segments(list: &[(u32, u32)]) -> Vec<Seen> {
        let segment = |(id, (start, end)): (u16, &(u32, u32))| Seen {
            ports: [1, 2],
            id,
            seq: (u32::MAX - 150).wrapping_add(*start),
            payload: (end - start) as u16,
        };
        (0..).zip(list).map(segment).collect()
    }

    fn truth(list: &[(u32, u32)], lost: &[usize]) -> Truth {
        let sent = segments(list);
        let arrived = |(place, _): &(usize, &Seen)| !lost.contains(place);
        let arrived = sent.iter().enumerate().filter(arrived);
        let arrived: Vec<Seen> = arrived.map(|(_, seen)| *seen).collect();
        Truth::of(&sent, &arrived)
    }

    #[test]
    fn a_loss_is_repaired_by_the_bundle_that_first_brings_all_of_it() {
        let list = [(0, 100), (0, 200), (0, 300), (300, 400)];
        let repaired = |lost: &[usize]| truth(&list, lost).repaired;
        assert_eq!(repaired(&[]), 0);
        assert_eq!(repaired(&[0]), 1);
        assert_eq!(repaired(&[0, 1]), 2);
        // No later segment covers the third and the last.
        assert_eq!(truth(&list, &[2, 3]).lost, 2);
        assert_eq!(repaired(&[2, 3]), 0);
    }

    #[test]
    fn what_a_retransmission_brings_first_no_bundle_repaired() {
        let list = [(0, 100), (100, 200), (0, 100), (0, 300)];
        let truth = truth(&list, &[0, 2]);
        assert_eq!((truth.segments, truth.lost, truth.repaired), (4, 1, 1));
        assert_eq!(self::truth(&list, &[0]).repaired, 0);
    }
}
