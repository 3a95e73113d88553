//! Delays between the two traces.

use pillion_stats::measure::Distribution;
use serde::Serialize;

use super::batch::{End, Extent, Transit};
use super::pending_delays::PendingDelays;
use crate::Readable;
use crate::event::PathDirection;
use crate::link::hull::Hull;
use crate::pair::{Clock, LinearDelay};

/// Times between two traces, whose clocks need not agree.
///
/// By two clocks they wait until the clocks are known: of each direction, a sample of 16,384 packets
/// and of as many byte ranges, where there are more.
#[derive(Debug, Clone, Default)]
pub struct Delay {
    /// Delay variation of each packet with payload that arrived (RFC 5481, PDV): its delay minus
    /// the smallest one of its connection, the handshake's included, by the drift of the lower hull
    /// of all connections' delays. It is the queueing delay where the path does not change (thesis,
    /// section 3.4.3) and was idle once: connections may take different paths, so that the smallest
    /// delay of another one tells nothing of a queue.
    pub variation: Distribution,
    /// One-way delay of each packet with payload that arrived.
    pub one_way: Distribution,
    /// Delivery latency at the transport layer: from the first time that a byte range was sent
    /// to its first arrival.
    pub transport: Distribution,
    /// Delivery latency at the application layer: until all bytes before it were there as well,
    /// so that the application could read it.
    pub application: Distribution,
    /// What is in none of them.
    pub untold: Untold,
    waiting: Waiting,
}

/// Delays that are not known, and why: they are in no distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Untold {
    /// Packets with payload that arrived earlier than they left, by clocks that were said to be
    /// one.
    pub negative_delays: u64,
    /// Byte ranges that arrived earlier than they were sent, or by two clocks of which the trace at the sender misses when they were
    /// first sent.
    pub negative_latencies: u64,
    /// Packets with payload of which nothing tells how the clocks relate.
    pub packets_without_clock: u64,
    /// Bytes that arrived, and could be read at a time that is not known: bytes before them arrived
    /// unseen.
    pub bytes_read_unseen: u64,
    /// Bytes that could not be read to the end of the traces, whether or not they arrived.
    pub bytes_never_read: u64,
    /// Bytes that were sent, and not acknowledged to the end of the trace.
    pub bytes_never_acked: u64,
}

/// What waits until all is known of the clocks.
#[derive(Debug, Clone)]
enum Waiting {
    /// By two clocks.
    Two {
        packets: PendingDelays,
        transport: PendingDelays,
        application: PendingDelays,
    },
    /// By one, of which the least delay is not known yet.
    One(Above),
}

impl Default for Waiting {
    fn default() -> Self {
        Self::Two {
            packets: PendingDelays::default(),
            transport: PendingDelays::default(),
            application: PendingDelays::default(),
        }
    }
}

impl Delay {
    pub(super) fn new(one_clock: bool) -> Self {
        Self {
            waiting: if one_clock {
                Waiting::One(Above::default())
            } else {
                Waiting::default()
            },
            ..Self::default()
        }
    }

    /// Enters a packet with payload.
    #[inline]
    pub(super) fn fate(&mut self, fate: &Transit) {
        let End::Delivered { raw_delay_ns } = fate.outcome else {
            return;
        };
        match &mut self.waiting {
            Waiting::Two { packets, .. } => packets.push(fate.sent_ns, raw_delay_ns),
            Waiting::One(variation) => {
                variation.add(raw_delay_ns);
                if raw_delay_ns < 0 {
                    self.untold.negative_delays += 1;
                } else {
                    self.one_way.record(raw_delay_ns);
                }
            }
        }
    }

    #[inline]
    pub(super) fn range(&mut self, range: &Extent) {
        if range.ack_latency_ns.is_none() && range.first_sent_ns.is_some() {
            self.untold.bytes_never_acked += range.len;
        }
        let Some(delivery) = range.delivery else {
            if range.has_receiver && !range.arrived_unseen {
                self.untold.bytes_never_read += range.len;
            }
            return;
        };
        match delivery.readable {
            Readable::At(_) => {}
            Readable::Unknown => self.untold.bytes_read_unseen += range.len,
            Readable::Never => self.untold.bytes_never_read += range.len,
        }
        let Some(sent_ns) = range.first_sent_ns else {
            return;
        };
        let raw_ns = delivery.at_ns.saturating_sub(sent_ns);
        let readable_ns = delivery.in_order_ns();
        let readable_ns = readable_ns.map(|at_ns| at_ns.saturating_sub(sent_ns));
        match &mut self.waiting {
            Waiting::Two {
                transport,
                application,
                ..
            } => {
                transport.push(sent_ns, raw_ns);
                if let Some(readable_ns) = readable_ns {
                    application.push(sent_ns, readable_ns);
                }
            }
            Waiting::One(_) if raw_ns < 0 => self.untold.negative_latencies += 1,
            Waiting::One(_) => {
                self.transport.record(raw_ns);
                if let Some(readable_ns) = readable_ns {
                    self.application.record(readable_ns);
                }
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.variation.add(&other.variation);
        self.one_way.add(&other.one_way);
        self.transport.add(&other.transport);
        self.application.add(&other.application);
        self.untold.add(&other.untold);
    }

    /// Takes the clocks out of what waited. `lowest`: of the raw delays of all packets of this
    /// direction, those without payload as well.
    pub(super) fn compare(&mut self, way: PathDirection, clock: &Clock, lowest: &Hull) {
        let least = clock.least(way);
        let lowest = |slope| LinearDelay::below(lowest, slope);
        match std::mem::take(&mut self.waiting) {
            Waiting::One(variation) => {
                if let Some(least) = lowest(0.0) {
                    self.variation = variation.above(least.delay_ns as i64);
                }
            }
            Waiting::Two {
                packets,
                transport,
                application,
            } => {
                let Some(zero) = clock.zero(way) else {
                    self.untold.packets_without_clock += packets.len();
                    return;
                };
                let own = least.and_then(|line| lowest(line.slope));
                self.variation = own.map_or_else(Distribution::default, |line| packets.above(line));
                self.one_way = packets.above(zero);
                let below;
                (self.transport, below) = transport.not_below(zero);
                (self.application, _) = application.not_below(zero);
                self.untold.negative_latencies += below;
            }
        }
    }

    pub(super) fn settle(&mut self) {
        for distribution in [
            &mut self.variation,
            &mut self.one_way,
            &mut self.transport,
            &mut self.application,
        ] {
            distribution.settle();
        }
    }
}

impl Untold {
    fn add(&mut self, other: &Self) {
        self.negative_delays += other.negative_delays;
        self.negative_latencies += other.negative_latencies;
        self.packets_without_clock += other.packets_without_clock;
        self.bytes_read_unseen += other.bytes_read_unseen;
        self.bytes_never_read += other.bytes_never_read;
        self.bytes_never_acked += other.bytes_never_acked;
    }
}

/// Values, of which the least is known at the end: how much higher the others are is kept, so that
/// rounding is of that alone.
#[derive(Debug, Clone, Default)]
pub(super) struct Above {
    /// Heights above the base, and the base.
    heights: Option<(i64, Distribution)>,
    /// Values that came before there was a base, and lower ones than the base.
    low: Vec<i64>,
}

const MOST_LOW: usize = 4096;

impl Above {
    #[inline]
    pub(super) fn add(&mut self, value: i64) {
        match &mut self.heights {
            Some((base, heights)) if value >= *base => heights.record(value.saturating_sub(*base)),
            _ => self.add_low(value),
        }
    }

    fn add_low(&mut self, value: i64) {
        self.low.push(value);
        if self.low.len() >= MOST_LOW {
            self.lower();
        }
    }

    /// Takes a base that no value so far is below. Each time it goes down twice as far as it must,
    /// so that it does not have to often.
    fn lower(&mut self) {
        let Some(least) = self.low.iter().copied().min() else {
            return;
        };
        let (base, mut heights) = match self.heights.take() {
            None => (least, Distribution::default()),
            Some((base, mut heights)) => {
                let down = base.saturating_sub(least).saturating_mul(2);
                heights.shift(down);
                (base.saturating_sub(down), heights)
            }
        };
        for value in self.low.drain(..) {
            heights.record(value.saturating_sub(base));
        }
        self.heights = Some((base, heights));
    }

    /// How much higher than `least` all are.
    pub(super) fn above(mut self, least: i64) -> Distribution {
        if self.heights.is_none() {
            return (self.low.iter())
                .map(|value| value.saturating_sub(least))
                .collect();
        }
        self.lower();
        let Some((base, mut heights)) = self.heights else {
            return Distribution::default();
        };
        heights.shift(base.saturating_sub(least));
        heights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_are_above_the_least_whenever_it_comes() {
        let values = || (0..100_000_i64).map(|number| 50_000_000 + number * 7919 % 4_000_000);
        let falling = || (0..100_000_i64).map(|number| 90_000_000 - number * 100);
        for all in [values().collect::<Vec<_>>(), falling().collect()] {
            let mut above = Above::default();
            all.iter().for_each(|value| above.add(*value));
            let least = *all.iter().min().unwrap();
            let heights = above.above(least);
            let mut expected: Vec<i64> = all.iter().map(|value| value - least).collect();
            expected.sort_unstable();
            assert_eq!((heights.len(), heights.min()), (100_000, Some(0)));
            assert_eq!(heights.max(), expected.last().map(|most| *most as u64));
            for percent in [1, 50, 90, 99] {
                let found = heights.quantile(f64::from(percent) / 100.0).unwrap() as f64;
                let exact = expected[percent as usize * 1000 - 1] as f64;
                assert!(
                    (found - exact).abs() < 0.003 * exact + 30_000.0,
                    "{found}, {exact}"
                );
            }
        }
    }
}
