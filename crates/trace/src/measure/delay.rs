//! Delays between the two traces.

use pillion_stats::measure::Distribution;
use serde::Serialize;

use super::batch::{RangeSample, TransitResult, TransitSample};
use super::pending_delays::PendingDelays;
use crate::ReadTime;
use crate::event::PathDirection;
use crate::link::hull::Hull;
use crate::pair::{Clock, LinearDelay};

/// Times between two traces, whose clocks may differ.
///
/// With two clocks, values wait until the clocks are known. Beyond 16,384 packets and as many byte
/// ranges per direction, a sample of that size represents them.
#[derive(Debug, Clone, Default)]
pub struct Delay {
    /// Delay variation of each arrived packet with payload (RFC 5481, PDV): its delay above the
    /// smallest of its connection, handshake included. The drift is that of the lower hull of all
    /// delays. It is the queueing delay if the path does not change (thesis, section 3.4.3) and was
    /// idle once. Other connections may take other paths, so their smallest delay does not count.
    pub variation: Distribution,
    /// One-way delay of each arrived packet with payload.
    pub one_way: Distribution,
    /// Delivery latency at the transport layer: first transmission of a byte range to its first
    /// arrival.
    pub transport: Distribution,
    /// Delivery latency at the application layer: until all bytes before it had arrived as well.
    pub application: Distribution,
    /// Values that no distribution contains.
    pub unknown_delays: UnknownDelays,
    unadjusted: UnadjustedDelays,
}

/// Delays without a value, by reason; they are in no distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct UnknownDelays {
    /// Packets with payload that arrived before they left, although one clock took both traces.
    pub negative_delays: u64,
    /// Packets with payload that arrived while an equal packet was in transit: either may have
    /// arrived.
    pub ambiguous_packets: u64,
    /// Byte ranges that arrived before they were sent. With two clocks: ranges whose first
    /// transmission is missing in the sender's trace.
    pub negative_latencies: u64,
    /// Packets with payload while the relation of the clocks is unknown.
    pub packets_without_clock: u64,
    /// Bytes that became readable at an unknown time, because bytes before them arrived unseen.
    pub bytes_read_unseen: u64,
    /// Bytes that were not readable by the end of the traces, whether or not they arrived.
    pub bytes_never_read: u64,
    /// Bytes sent but not acknowledged by the end of the trace.
    pub bytes_never_acked: u64,
}

/// Values that wait until the clocks are known.
#[derive(Debug, Clone)]
enum UnadjustedDelays {
    /// By two clocks.
    TwoClocks {
        packets: PendingDelays,
        transport: PendingDelays,
        application: PendingDelays,
    },
    /// By one clock, while the smallest delay is unknown.
    OneClock(AboveMinimum),
}

impl Default for UnadjustedDelays {
    fn default() -> Self {
        Self::TwoClocks {
            packets: PendingDelays::default(),
            transport: PendingDelays::default(),
            application: PendingDelays::default(),
        }
    }
}

impl Delay {
    pub(super) fn new(one_clock: bool) -> Self {
        Self {
            unadjusted: if one_clock {
                UnadjustedDelays::OneClock(AboveMinimum::default())
            } else {
                UnadjustedDelays::default()
            },
            ..Self::default()
        }
    }

    /// Adds a packet with payload.
    #[inline]
    pub(super) fn disposition(&mut self, disposition: &TransitSample) {
        let TransitResult::Delivered { raw_delay_ns } = disposition.outcome else {
            return;
        };
        let Some(raw_delay_ns) = raw_delay_ns else {
            self.unknown_delays.ambiguous_packets += 1;
            return;
        };
        match &mut self.unadjusted {
            UnadjustedDelays::TwoClocks { packets, .. } => {
                packets.push(disposition.sent_ns, raw_delay_ns);
            }
            UnadjustedDelays::OneClock(variation) => {
                variation.add(raw_delay_ns);
                if raw_delay_ns < 0 {
                    self.unknown_delays.negative_delays += 1;
                } else {
                    self.one_way.record(raw_delay_ns);
                }
            }
        }
    }

    #[inline]
    pub(super) fn range(&mut self, range: &RangeSample) {
        if range.ack_latency_ns.is_none() && range.first_sent_ns.is_some() {
            self.unknown_delays.bytes_never_acked += range.len;
        }
        let Some(delivery) = range.delivery else {
            if range.has_receiver && !range.arrived_unseen {
                self.unknown_delays.bytes_never_read += range.len;
            }
            return;
        };
        match delivery.readable {
            ReadTime::At(_) => {}
            ReadTime::Unknown => self.unknown_delays.bytes_read_unseen += range.len,
            ReadTime::Never => self.unknown_delays.bytes_never_read += range.len,
        }
        let Some(sent_ns) = range.first_sent_ns else {
            return;
        };
        let raw_ns = delivery.at_ns.saturating_sub(sent_ns);
        let readable_ns = delivery.in_order_ns();
        let readable_ns = readable_ns.map(|at_ns| at_ns.saturating_sub(sent_ns));
        match &mut self.unadjusted {
            UnadjustedDelays::TwoClocks {
                transport,
                application,
                ..
            } => {
                transport.push(sent_ns, raw_ns);
                if let Some(readable_ns) = readable_ns {
                    application.push(sent_ns, readable_ns);
                }
            }
            UnadjustedDelays::OneClock(_) if raw_ns < 0 => {
                self.unknown_delays.negative_latencies += 1;
            }
            UnadjustedDelays::OneClock(_) => {
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
        self.unknown_delays.add(&other.unknown_delays);
    }

    /// Converts the waiting values by the clocks. `lowest`: lower hull of the raw delays of all
    /// packets of this direction, with or without payload.
    pub(super) fn apply_clock(&mut self, way: PathDirection, clock: &Clock, lowest: &Hull) {
        let min_delay = clock.min_delay(way);
        let lowest = |slope| LinearDelay::below(lowest, slope);
        match std::mem::take(&mut self.unadjusted) {
            UnadjustedDelays::OneClock(variation) => {
                if let Some(min_delay) = lowest(0.0) {
                    self.variation = variation.above(min_delay.delay_ns as i64);
                }
            }
            UnadjustedDelays::TwoClocks {
                packets,
                transport,
                application,
            } => {
                let Some(delay_origin) = clock.delay_origin(way) else {
                    self.unknown_delays.packets_without_clock += packets.len();
                    return;
                };
                let own = min_delay.and_then(|line| lowest(line.slope));
                self.variation = own.map_or_else(Distribution::default, |line| packets.above(line));
                self.one_way = packets.above(delay_origin);
                let below;
                (self.transport, below) = transport.at_or_above(delay_origin);
                (self.application, _) = application.at_or_above(delay_origin);
                self.unknown_delays.negative_latencies += below;
            }
        }
    }

    pub(super) fn finalize(&mut self) {
        for distribution in [
            &mut self.variation,
            &mut self.one_way,
            &mut self.transport,
            &mut self.application,
        ] {
            distribution.finalize();
        }
    }
}

impl UnknownDelays {
    fn add(&mut self, other: &Self) {
        add_fields! {
            self += other:
            negative_delays, ambiguous_packets, negative_latencies, packets_without_clock,
            bytes_read_unseen, bytes_never_read, bytes_never_acked
        }
    }
}

/// Values relative to a minimum that is known only at the end. Stores only the heights, so that
/// only they are rounded.
#[derive(Debug, Clone, Default)]
pub(super) struct AboveMinimum {
    /// The base, and heights above it.
    heights: Option<(i64, Distribution)>,
    /// Values before there was a base, or below it.
    low: Vec<i64>,
}

const MAX_LOW: usize = 4096;

impl AboveMinimum {
    #[inline]
    pub(super) fn add(&mut self, value: i64) {
        match &mut self.heights {
            Some((base, heights)) if value >= *base => heights.record(value.saturating_sub(*base)),
            _ => self.add_low(value),
        }
    }

    fn add_low(&mut self, value: i64) {
        self.low.push(value);
        if self.low.len() >= MAX_LOW {
            self.lower();
        }
    }

    /// Lowers the base to the smallest value. Each time it moves twice as far as needed, so that it
    /// moves rarely.
    fn lower(&mut self) {
        let Some(min_delay) = self.low.iter().copied().min() else {
            return;
        };
        let (base, mut heights) = match self.heights.take() {
            None => (min_delay, Distribution::default()),
            Some((base, mut heights)) => {
                let down = base.saturating_sub(min_delay).saturating_mul(2);
                heights.shift(down);
                (base.saturating_sub(down), heights)
            }
        };
        for value in self.low.drain(..) {
            heights.record(value.saturating_sub(base));
        }
        self.heights = Some((base, heights));
    }

    /// The heights above `min_delay`.
    pub(super) fn above(mut self, min_delay: i64) -> Distribution {
        if self.heights.is_none() {
            return (self.low.iter())
                .map(|value| value.saturating_sub(min_delay))
                .collect();
        }
        self.lower();
        let Some((base, mut heights)) = self.heights else {
            return Distribution::default();
        };
        heights.shift(base.saturating_sub(min_delay));
        heights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_are_relative_to_minimum_in_any_order() {
        let values = || (0..100_000_i64).map(|number| 50_000_000 + number * 7919 % 4_000_000);
        let falling = || (0..100_000_i64).map(|number| 90_000_000 - number * 100);
        for all in [values().collect::<Vec<_>>(), falling().collect()] {
            let mut above = AboveMinimum::default();
            all.iter().for_each(|value| above.add(*value));
            let min_delay = *all.iter().min().unwrap();
            let heights = above.above(min_delay);
            let mut expected: Vec<i64> = all.iter().map(|value| value - min_delay).collect();
            expected.sort_unstable();
            assert_eq!((heights.len(), heights.min()), (100_000, Some(0)));
            assert_eq!(heights.max(), expected.last().map(|last| *last as u64));
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
