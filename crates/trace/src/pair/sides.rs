use super::clock::Clock;
use super::minima::{Minima, Point};
use crate::connection::Side;
use crate::packet::Packet;

/// What is known of the two traces as a whole while they are read.
#[derive(Debug)]
pub(crate) struct Sides {
    /// What has not arrived after this time will not.
    given_up_after_ns: i64,
    /// For packets that leave at either side: until when, by the clock of the other, all that
    /// left is known.
    certain_ns: [i64; 2],
    /// And before which time, by their own clock, they have arrived if they ever do.
    given_up_ns: [i64; 2],
    /// The first and the last time that each has shown, by its own clock.
    seen: [Option<(i64, i64)>; 2],
    /// Which have been read to their end.
    ended: [bool; 2],
    /// By how much the receiver's clock is ahead, about.
    offset_ns: i64,
    ways: [Delays; 2],
    matches: u32,
}

/// The raw delays of the packets that leave at one side.
#[derive(Debug, Default)]
struct Delays {
    minima: Minima,
    range_ns: Option<(i64, i64)>,
    /// When the last packet left that arrived.
    last_ns: Option<i64>,
    lately_ns: Option<i64>,
}

/// The estimate of the clocks' offset is renewed after so many packets that were found in both.
const RENEWAL: u32 = 4096;

/// What arrives is compared with what was sent up to this much later by the clocks' estimated
/// offset, before it is said that it was not sent: the estimate's error, many times over.
const SLACK_NS: i64 = 1_000_000_000;

impl Sides {
    pub(crate) fn new(max_transit_ns: i64, offset_ns: i64) -> Self {
        Self {
            given_up_after_ns: max_transit_ns.saturating_add(SLACK_NS),
            certain_ns: [i64::MIN; 2],
            given_up_ns: [i64::MIN; 2],
            seen: [None; 2],
            ended: [false; 2],
            offset_ns,
            ways: Default::default(),
            matches: 0,
        }
    }

    /// Takes notice of the next packet of one trace, and gives its time by the sender's clock.
    #[inline]
    pub(crate) fn saw(&mut self, side: Side, at_ns: i64) -> i64 {
        let seen = &mut self.seen[side as usize];
        let (first, last) = seen.unwrap_or((at_ns, at_ns));
        *seen = Some((first.min(at_ns), last.max(at_ns)));
        let (here_ns, there_ns) = match side {
            Side::Sender => (at_ns, self.by_clock_of(Side::Receiver, at_ns)),
            Side::Receiver => (self.by_clock_of(Side::Sender, at_ns), at_ns),
        };
        self.certain_ns = [there_ns, here_ns].map(|ns| ns.saturating_sub(SLACK_NS));
        self.given_up_ns = [here_ns, there_ns].map(|ns| ns.saturating_sub(self.given_up_after_ns));
        here_ns
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
    pub(crate) fn ahead_ns(&self) -> i64 {
        self.offset_ns
    }

    /// About the time by one side's clock when the other's shows `at_ns`.
    #[inline]
    pub(crate) fn by_clock_of(&self, side: Side, at_ns: i64) -> i64 {
        match side {
            Side::Receiver => at_ns.saturating_add(self.offset_ns),
            Side::Sender => at_ns.saturating_sub(self.offset_ns),
        }
    }

    /// Until when, by the clock of the side of arrival, all that left the other side is known.
    #[inline]
    pub(crate) fn certain_ns(&self, departure: Side) -> i64 {
        self.certain_ns[departure as usize]
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
        let range_ns = self.ways[departure as usize].range_ns;
        let Some(((first, last), (least, most))) = self.seen[arrival].zip(range_ns) else {
            return (i64::MAX, i64::MIN);
        };
        // What left before something that arrived would have arrived before the end as well, even
        // if one packet took, or seems to have taken, very long.
        let end = if self.ended[arrival] {
            let last_ns = self.ways[departure as usize].last_ns;
            last.saturating_sub(most).max(last_ns.unwrap_or(i64::MIN))
        } else {
            i64::MAX
        };
        (first.saturating_sub(least), end)
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
        let (least, most) = way.range_ns.unwrap_or((raw_ns, raw_ns));
        way.range_ns = Some((least.min(raw_ns), most.max(raw_ns)));
        way.last_ns = way.last_ns.max(Some(sent_ns));
        way.lately_ns = Some(way.lately_ns.map_or(raw_ns, |least| least.min(raw_ns)));
        self.matches += 1;
        if self.matches == RENEWAL {
            self.matches = 0;
            let [there, back] = &mut self.ways;
            if let (Some(there), Some(back)) = (there.lately_ns.take(), back.lately_ns.take()) {
                self.offset_ns = (there / 2).saturating_sub(back / 2);
            }
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        Clock::of(&self.ways[0].minima, &self.ways[1].minima)
    }
}
