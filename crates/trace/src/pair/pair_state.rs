use std::mem;

use super::clock::Clock;
use crate::event::ClockOffset;
use crate::event::Side;
use crate::link::KnownDepartures;
use crate::link::hull::{DelayPoint, Minima};
use crate::packet::Packet;

/// State of two traces while they are read.
#[derive(Debug)]
pub(crate) struct PairState {
    /// After this time, a packet that has not arrived is lost.
    loss_timeout_ns: i64,
    /// Time of the last packet of either trace, by each clock.
    now_ns: [i64; 2],
    /// Packets sent from each side before this time, by its clock, have arrived or are lost.
    loss_deadline_ns: [i64; 2],
    /// The first and last time of each trace, by its own clock.
    seen: [Span; 2],
    /// Traces that have been read completely.
    ended: [bool; 2],
    /// Estimated offset of the receiver's clock.
    offset_ns: i64,
    /// One clock took both traces.
    same_clock: bool,
    ways: [Delays; 2],
    matches: u32,
}

/// Raw delays of packets that leave one side.
#[derive(Debug)]
struct Delays {
    minima: Minima,
    raw: Span,
    /// Departure time of the latest packet that arrived; `MIN` without one.
    last_ns: i64,
    /// The minimum since the last update of the offset; `MAX` without one.
    recent_min_ns: i64,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            minima: Minima::default(),
            raw: Span::default(),
            last_ns: i64::MIN,
            recent_min_ns: i64::MAX,
        }
    }
}

/// Minimum and maximum of times, in nanoseconds. Empty if the maximum is smaller.
#[derive(Debug, Clone, Copy)]
struct Span {
    min_ns: i64,
    max_ns: i64,
}

impl Default for Span {
    fn default() -> Self {
        Self {
            min_ns: i64::MAX,
            max_ns: i64::MIN,
        }
    }
}

impl Span {
    #[inline]
    fn add(&mut self, ns: i64) {
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    fn is_empty(&self) -> bool {
        self.max_ns < self.min_ns
    }
}

/// The clock offset is estimated again after this many matched packets.
const OFFSET_UPDATE_PACKETS: u32 = 4096;

/// Margin for the error of the estimated clock offset, before an arrival counts as not sent; many
/// times larger than the error.
const SLACK_NS: i64 = 1_000_000_000;

impl PairState {
    /// `offset_ns`: estimated offset of the receiver's clock; `None` with one clock.
    pub(crate) fn new(max_transit_ns: i64, offset_ns: Option<i64>) -> Self {
        Self {
            loss_timeout_ns: max_transit_ns.saturating_add(SLACK_NS),
            now_ns: [i64::MIN; 2],
            loss_deadline_ns: [i64::MIN; 2],
            seen: Default::default(),
            ended: [false; 2],
            offset_ns: offset_ns.unwrap_or(0),
            same_clock: offset_ns.is_none(),
            ways: Default::default(),
            matches: 0,
        }
    }

    /// Records the next packet of one trace, and returns its time by the sender's clock.
    #[inline]
    pub(crate) fn observe(&mut self, side: Side, at_ns: i64) -> i64 {
        self.seen[side as usize].add(at_ns);
        self.now_ns = match side {
            Side::Sender => [at_ns, self.by_clock_of(Side::Receiver, at_ns)],
            Side::Receiver => [self.by_clock_of(Side::Sender, at_ns), at_ns],
        };
        let after_ns = self.loss_timeout_ns;
        self.loss_deadline_ns = self.now_ns.map(|ns| ns.saturating_sub(after_ns));
        self.now_ns[0]
    }

    /// Records the end of one trace.
    pub(crate) fn mark_ended(&mut self, side: Side) {
        self.ended[side as usize] = true;
    }

    /// Whether a packet of the sender's trace precedes one of the receiver's.
    #[inline]
    pub(crate) fn is_earlier(&self, here: &Packet, there: &Packet) -> bool {
        here.at_ns <= self.by_clock_of(Side::Sender, there.at_ns)
    }

    /// Estimated offset of the receiver's clock.
    #[inline]
    pub(crate) fn ahead(&self) -> ClockOffset {
        if self.same_clock {
            ClockOffset::SameClock
        } else {
            ClockOffset::Estimated(self.offset_ns)
        }
    }

    /// Approximate time by one side's clock when the other's shows `at_ns`.
    #[inline]
    pub(crate) fn by_clock_of(&self, side: Side, at_ns: i64) -> i64 {
        match side {
            Side::Receiver => at_ns.saturating_add(self.offset_ns),
            Side::Sender => at_ns.saturating_sub(self.offset_ns),
        }
    }

    /// Approximate time by the sender's clock when the clock of `side` shows `at_ns`.
    #[inline]
    pub(crate) fn by_senders_clock(&self, side: Side, at_ns: i64) -> i64 {
        match side {
            Side::Sender => at_ns,
            Side::Receiver => self.by_clock_of(Side::Sender, at_ns),
        }
    }

    /// The known departures from a side; all, once the traces have ended.
    #[inline]
    pub(crate) fn known_departures(&self, departure: Side, ended: bool) -> KnownDepartures {
        let now_ns = match ended {
            true => i64::MAX,
            false => self.now_ns[departure.other() as usize],
        };
        KnownDepartures {
            now_ns,
            complete_until_ns: if ended {
                i64::MAX
            } else {
                now_ns.saturating_sub(SLACK_NS)
            },
            offset_ns: self.by_clock_of(departure, 0),
        }
    }

    /// All arrivals at the other side are known up to this time, by the clock of the departure
    /// side.
    #[inline]
    pub(crate) fn known_ns(&self, departure: Side) -> i64 {
        self.now_ns[departure as usize].saturating_sub(SLACK_NS)
    }

    /// Approximate time by the clock of the arrival side.
    pub(crate) fn by_clock_of_other(&self, departure: Side, at_ns: i64) -> i64 {
        self.by_clock_of(departure.other(), at_ns)
    }

    /// Packets sent before this time, by the clock of their side, have arrived or are lost.
    #[inline]
    pub(crate) fn loss_deadline_ns(&self, departure: Side) -> i64 {
        self.loss_deadline_ns[departure as usize]
    }

    /// Departure times, by the clock of their side, whose arrival the other trace covers: after the
    /// first time and, once that trace has ended, before the last.
    pub(crate) fn covered_ns(&self, departure: Side) -> (i64, i64) {
        let arrival = departure.other() as usize;
        let (seen, way) = (self.seen[arrival], &self.ways[departure as usize]);
        if seen.is_empty() || way.raw.is_empty() {
            return (i64::MAX, i64::MIN);
        }
        // A packet that left before an arrived one would have arrived before the end as well, even
        // if another packet was very slow.
        let end = if self.ended[arrival] {
            let last_ns = seen.max_ns.saturating_sub(way.raw.max_ns);
            last_ns.max(way.last_ns)
        } else {
            i64::MAX
        };
        (seen.min_ns.saturating_sub(way.raw.min_ns), end)
    }

    /// Records a packet found in both traces.
    #[inline]
    pub(crate) fn matched(&mut self, departure: Side, sent_ns: i64, at_ns: i64) {
        let raw_ns = at_ns.saturating_sub(sent_ns);
        let way = &mut self.ways[departure as usize];
        way.minima.add(DelayPoint {
            at_ns: sent_ns,
            delay_ns: raw_ns,
        });
        way.raw.add(raw_ns);
        way.last_ns = way.last_ns.max(sent_ns);
        way.recent_min_ns = way.recent_min_ns.min(raw_ns);
        self.matches += 1;
        if self.matches == OFFSET_UPDATE_PACKETS {
            self.matches = 0;
            let [there, back] = &mut self.ways;
            let there_ns = mem::replace(&mut there.recent_min_ns, i64::MAX);
            let back_ns = mem::replace(&mut back.recent_min_ns, i64::MAX);
            if !self.same_clock && there_ns < i64::MAX && back_ns < i64::MAX {
                self.offset_ns = (there_ns / 2).saturating_sub(back_ns / 2);
            }
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        Clock::new(&self.ways[0].minima, &self.ways[1].minima, self.same_clock)
    }
}
