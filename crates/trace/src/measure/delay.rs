use super::batch::{End, Extent, Transit};
use super::distribution::Distribution;
use super::sampled::Sampled;
use crate::pair::{Clock, Line, Way};

/// Times between two traces, whose clocks need not agree.
///
/// Of each direction 16,384 packets and as many byte ranges are kept until the clocks are known;
/// where there are more, evenly chosen ones stand for the others.
#[derive(Debug, Clone, Default)]
pub struct Delay {
    /// Delay variation of each packet with payload that arrived (RFC 5481, PDV): its delay minus
    /// the smallest one by the lower hull of all delays, which takes offset and drift away. It is
    /// the queueing delay where the path does not change (thesis, section 3.4.3).
    pub variation: Distribution,
    /// The same by the regression through the smallest delays; what lies below it counts as 0.
    pub variation_by_regression: Distribution,
    /// One-way delay of the same packets.
    pub one_way: Distribution,
    /// Delivery latency at the transport layer: from the first time that a byte range was sent
    /// to its first arrival.
    pub transport: Distribution,
    /// Delivery latency at the application layer: until all bytes before it were there as well,
    /// so that the application could read it.
    pub application: Distribution,
    packets: Sampled<Passed>,
    ranges: Sampled<Delivered>,
}

/// By two clocks.
#[derive(Debug, Clone, Copy)]
struct Passed {
    sent_ns: i64,
    raw_ns: i64,
}

#[derive(Debug, Clone, Copy)]
struct Delivered {
    sent_ns: i64,
    raw_ns: i64,
    blocked_ns: Option<i64>,
}

/// How the clocks of two traces are taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Clocks {
    /// As one: delays are what they seem.
    Same(Clock),
    /// Each for itself: delays are told above the smallest one, which is half of the smallest
    /// round trip.
    Own(Clock),
}

impl Clocks {
    fn one_way_ns(&self, way: Way, sent_ns: i64, raw_ns: i64) -> Option<i64> {
        match self {
            Self::Same(_) => Some(raw_ns),
            Self::Own(clock) => Some(clock.one_way_ns(way, sent_ns, raw_ns)?.round() as i64),
        }
    }

    fn clock(&self) -> &Clock {
        let (Self::Same(clock) | Self::Own(clock)) = self;
        clock
    }
}

impl Delay {
    /// Enters a packet with payload.
    #[inline]
    pub(super) fn fate(&mut self, fate: &Transit) {
        if let End::Delivered { raw_delay_ns } = fate.end {
            self.packets.push(Passed {
                sent_ns: fate.sent_ns,
                raw_ns: raw_delay_ns,
            });
        }
    }

    #[inline]
    pub(super) fn range(&mut self, range: &Extent) {
        if let (Some(sent_ns), Some(delivery)) = (range.first_sent_ns, range.delivery) {
            self.ranges.push(Delivered {
                sent_ns,
                raw_ns: delivery.at_ns.saturating_sub(sent_ns),
                blocked_ns: delivery.blocked_ns(),
            });
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.variation.add(&other.variation);
        self.variation_by_regression
            .add(&other.variation_by_regression);
        self.one_way.add(&other.one_way);
        self.transport.add(&other.transport);
        self.application.add(&other.application);
    }

    /// Takes the clocks out of what was kept.
    pub(super) fn compare(&mut self, way: Way, clocks: &Clocks) {
        let fit = clocks.clock().fit(way);
        let above = |line: Option<Line>, passed: &Passed| {
            line.map(|line| (passed.raw_ns as f64 - line.at(passed.sent_ns)).round() as i64)
        };
        for (passed, times) in std::mem::take(&mut self.packets).iter() {
            if let Some(variation_ns) = above(fit.hull, passed) {
                self.variation.record_many(variation_ns, times);
            }
            if let Some(variation_ns) = above(fit.regression, passed) {
                self.variation_by_regression
                    .record_many(variation_ns, times);
            }
            if let Some(delay_ns) = clocks.one_way_ns(way, passed.sent_ns, passed.raw_ns) {
                self.one_way.record_many(delay_ns, times);
            }
        }
        for (delivered, times) in std::mem::take(&mut self.ranges).iter() {
            let latency = clocks.one_way_ns(way, delivered.sent_ns, delivered.raw_ns);
            let Some(latency_ns) = latency else { continue };
            self.transport.record_many(latency_ns, times);
            if let Some(blocked_ns) = delivered.blocked_ns {
                let latency_ns = latency_ns.saturating_add(blocked_ns);
                self.application.record_many(latency_ns, times);
            }
        }
    }

    pub(super) fn settle(&mut self) {
        for distribution in [
            &mut self.variation,
            &mut self.variation_by_regression,
            &mut self.one_way,
            &mut self.transport,
            &mut self.application,
        ] {
            distribution.settle();
        }
    }
}
