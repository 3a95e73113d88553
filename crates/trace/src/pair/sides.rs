use std::mem;

use super::clock::Clock;
use crate::event::Ahead;
use crate::event::Side;
use crate::link::hull::{Minima, Point};
use crate::packet::Packet;

/// What is known of the two traces as a whole while they are read.
#[derive(Debug)]
pub(crate) struct Sides {
    /// What has not arrived after this time will not.
    given_up_after_ns: i64,
    /// The time of the last packet, of whichever trace, by either clock.
    now_ns: [i64; 2],
    /// For packets that leave at either side: before which time, by the clock there, they have
    /// arrived if they ever do.
    given_up_ns: [i64; 2],
    /// The first and the last time that each has shown, by its own clock.
    seen: [Span; 2],
    /// The traces that have been read to their end.
    ended: [bool; 2],
    /// By how much the receiver's clock is ahead, about.
    offset_ns: i64,
    /// Both are by one clock.
    same_clock: bool,
    ways: [Delays; 2],
    matches: u32,
}

/// The raw delays of the packets that leave at one side.
#[derive(Debug)]
struct Delays {
    minima: Minima,
    raw: Span,
    /// When the last packet left that arrived; `MIN` if none did.
    last_ns: i64,
    /// The least since the estimate of the offset was renewed; `MAX` if there was none.
    lately_ns: i64,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            minima: Minima::default(),
            raw: Span::default(),
            last_ns: i64::MIN,
            lately_ns: i64::MAX,
        }
    }
}

/// The least and the most of some times, in nanoseconds; of none, the most is less.
#[derive(Debug, Clone, Copy)]
struct Span {
    least_ns: i64,
    most_ns: i64,
}

impl Default for Span {
    fn default() -> Self {
        Self {
            least_ns: i64::MAX,
            most_ns: i64::MIN,
        }
    }
}

impl Span {
    #[inline]
    fn add(&mut self, ns: i64) {
        self.least_ns = self.least_ns.min(ns);
        self.most_ns = self.most_ns.max(ns);
    }

    fn is_empty(&self) -> bool {
        self.most_ns < self.least_ns
    }
}

/// The estimate of the clocks' offset is renewed after so many packets that were found in both.
const RENEWAL: u32 = 4096;

/// What arrives is compared with what was sent up to this much later by the clocks' estimated
/// offset, before it is said that it was not sent: the estimate's error, many times over.
const SLACK_NS: i64 = 1_000_000_000;

impl Sides {
    /// `offset_ns`: by how much the receiver's clock is ahead, about; `None` of one clock.
    pub(crate) fn new(max_transit_ns: i64, offset_ns: Option<i64>) -> Self {
        Self {
            given_up_after_ns: max_transit_ns.saturating_add(SLACK_NS),
            now_ns: [i64::MIN; 2],
            given_up_ns: [i64::MIN; 2],
            seen: Default::default(),
            ended: [false; 2],
            offset_ns: offset_ns.unwrap_or(0),
            same_clock: offset_ns.is_none(),
            ways: Default::default(),
            matches: 0,
        }
    }

    /// Takes notice of the next packet of one trace, and gives its time by the sender's clock.
    #[inline]
    pub(crate) fn saw(&mut self, side: Side, at_ns: i64) -> i64 {
        self.seen[side as usize].add(at_ns);
        self.now_ns = match side {
            Side::Sender => [at_ns, self.by_clock_of(Side::Receiver, at_ns)],
            Side::Receiver => [self.by_clock_of(Side::Sender, at_ns), at_ns],
        };
        let after_ns = self.given_up_after_ns;
        self.given_up_ns = self.now_ns.map(|ns| ns.saturating_sub(after_ns));
        self.now_ns[0]
    }

    /// Says that no more comes of one trace.
    pub(crate) fn end(&mut self, side: Side) {
        self.ended[side as usize] = true;
    }

    /// Whether a packet of the sender's trace comes before one of the receiver's.
    #[inline]
    pub(crate) fn is_earlier(&self, here: &Packet, there: &Packet) -> bool {
        here.at_ns <= self.by_clock_of(Side::Sender, there.at_ns)
    }

    /// By how much the receiver's clock is ahead, about.
    #[inline]
    pub(crate) fn ahead(&self) -> Ahead {
        if self.same_clock {
            Ahead::Never
        } else {
            Ahead::About(self.offset_ns)
        }
    }

    /// About the time by one side's clock when the other's shows `at_ns`.
    #[inline]
    pub(crate) fn by_clock_of(&self, side: Side, at_ns: i64) -> i64 {
        match side {
            Side::Receiver => at_ns.saturating_add(self.offset_ns),
            Side::Sender => at_ns.saturating_sub(self.offset_ns),
        }
    }

    /// About the time by the clock of the sender's trace when that of one side's shows `at_ns`.
    #[inline]
    pub(crate) fn by_senders_clock(&self, side: Side, at_ns: i64) -> i64 {
        match side {
            Side::Sender => at_ns,
            Side::Receiver => self.by_clock_of(Side::Sender, at_ns),
        }
    }

    /// Until when, by the clock of the side of arrival, all that left the other side is known.
    #[inline]
    pub(crate) fn certain_ns(&self, departure: Side) -> i64 {
        self.now_ns[departure.other() as usize].saturating_sub(SLACK_NS)
    }

    /// Until when, by the clock of the side of departure, all that had reached the other side is
    /// known.
    #[inline]
    pub(crate) fn known_ns(&self, departure: Side) -> i64 {
        self.now_ns[departure as usize].saturating_sub(SLACK_NS)
    }

    /// About the time by the clock of the side of arrival.
    pub(crate) fn by_clock_of_other(&self, departure: Side, at_ns: i64) -> i64 {
        self.by_clock_of(departure.other(), at_ns)
    }

    /// What left before this time, by the clock of its side, and has not arrived, will not.
    #[inline]
    pub(crate) fn given_up_ns(&self, departure: Side) -> i64 {
        self.given_up_ns[departure as usize]
    }

    /// When a packet must have left, by the clock of its side, for the other side to show its
    /// arrival: after the first of these times and, once that trace has ended, before the last.
    pub(crate) fn covered_ns(&self, departure: Side) -> (i64, i64) {
        let arrival = departure.other() as usize;
        let (seen, way) = (self.seen[arrival], &self.ways[departure as usize]);
        if seen.is_empty() || way.raw.is_empty() {
            return (i64::MAX, i64::MIN);
        }
        // What left before something that arrived would have arrived before the end as well, even
        // if one packet took, or seems to have taken, very long.
        let end = if self.ended[arrival] {
            let last_ns = seen.most_ns.saturating_sub(way.raw.most_ns);
            last_ns.max(way.last_ns)
        } else {
            i64::MAX
        };
        (seen.least_ns.saturating_sub(way.raw.least_ns), end)
    }

    /// A packet that left one side was found at the other.
    #[inline]
    pub(crate) fn matched(&mut self, departure: Side, sent_ns: i64, at_ns: i64) {
        let raw_ns = at_ns.saturating_sub(sent_ns);
        let way = &mut self.ways[departure as usize];
        way.minima.add(Point {
            at_ns: sent_ns,
            delay_ns: raw_ns,
        });
        way.raw.add(raw_ns);
        way.last_ns = way.last_ns.max(sent_ns);
        way.lately_ns = way.lately_ns.min(raw_ns);
        self.matches += 1;
        if self.matches == RENEWAL {
            self.matches = 0;
            let [there, back] = &mut self.ways;
            let there_ns = mem::replace(&mut there.lately_ns, i64::MAX);
            let back_ns = mem::replace(&mut back.lately_ns, i64::MAX);
            if !self.same_clock && there_ns < i64::MAX && back_ns < i64::MAX {
                self.offset_ns = (there_ns / 2).saturating_sub(back_ns / 2);
            }
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        Clock::of(&self.ways[0].minima, &self.ways[1].minima, self.same_clock)
    }
}
