//! Relation of the clocks of two traces.

use crate::event::PathDirection;
use crate::link::hull::{DelayPoint, Hull, MAX_SLOPE, Minima};

/// Relation of the clocks of two traces, and the smallest delay at any time.
///
/// Neither clock is assumed to be right: times are by the sender's.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Clock {
    /// Whether one clock took both traces, according to the caller. Then raw delays are delays.
    pub same: bool,
    /// The smallest raw delay from the sender's to the receiver's trace, over all connections: the
    /// line below all delays that is closest to them on the whole (S. B. Moon, P. Skelly, D.
    /// Towsley, INFOCOM 1999), with one drift for both directions. No delay lies below it by more
    /// than the drift in an 8192th of the trace.
    pub there: Option<LinearDelay>,
    /// The same from the receiver's to the sender's trace.
    pub back: Option<LinearDelay>,
    /// Approximate accuracy of the drift, in nanoseconds per nanosecond. `None` if drift cannot be
    /// measured and is assumed to be 0.
    pub drift_uncertainty: Option<f64>,
    centre_ns: i64,
}

/// A raw delay that changes linearly over time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearDelay {
    /// Reference time by the clock of the trace at the packets' sender, in nanoseconds.
    pub at_ns: i64,
    /// The raw delay at that time, in nanoseconds.
    pub delay_ns: f64,
    /// Growth in nanoseconds per nanosecond.
    pub slope: f64,
}

impl LinearDelay {
    /// The value at a time, in nanoseconds.
    #[must_use]
    pub fn at(&self, ns: i64) -> f64 {
        self.delay_ns + self.slope * ns.saturating_sub(self.at_ns) as f64
    }

    /// The line of this slope below all points of a hull.
    pub(crate) fn below(hull: &Hull, slope: f64) -> Option<Self> {
        let lowest = hull.lowest(slope)?;
        Some(Self {
            at_ns: lowest.at_ns,
            delay_ns: lowest.delay_ns as f64,
            slope,
        })
    }
}

/// The stored raw delays of one direction: the minimum of each 8192th of the trace. They represent
/// all others up to the drift in that time.
#[derive(Debug)]
struct Raw {
    points: Vec<DelayPoint>,
    hull: Hull,
    count: f64,
    /// Mean time of all packets.
    centre_ns: i64,
}

impl Raw {
    fn new(minima: &Minima) -> Self {
        let points = minima.points();
        let mut hull = Hull::default();
        points.iter().for_each(|point| hull.add(*point));
        Self {
            points,
            hull,
            count: minima.count() as f64,
            centre_ns: minima.centre_ns().unwrap_or_default(),
        }
    }

    fn span_ns(&self) -> i64 {
        let ends = self.points.first().zip(self.points.last());
        ends.map_or(0, |(first, last)| last.at_ns.saturating_sub(first.at_ns))
    }
}

impl Clock {
    pub(crate) fn new(there: &Minima, back: &Minima, same: bool) -> Self {
        let (there, back) = (&Raw::new(there), &Raw::new(back));
        let centre_ns = there.centre_ns;
        if same {
            let min_delay = |raw: &Raw| LinearDelay::below(&raw.hull, 0.0);
            return Self {
                same,
                there: min_delay(there),
                back: min_delay(back),
                drift_uncertainty: Some(0.0),
                centre_ns,
            };
        }
        let drift = Drift::new(there, back);
        Self {
            same,
            there: LinearDelay::below(&there.hull, drift.slope),
            back: LinearDelay::below(&back.hull, other_way(drift.slope)),
            drift_uncertainty: drift.uncertainty,
            centre_ns,
        }
    }

    /// The smallest raw delay of one direction.
    #[must_use]
    pub fn min_delay(&self, way: PathDirection) -> Option<LinearDelay> {
        match way {
            PathDirection::ToReceiver => self.there,
            PathDirection::ToSender => self.back,
        }
    }

    /// The line from which one-way delays count. With one clock it is 0. With two it is the
    /// smallest delay minus half of the smallest round trip (thesis, section 3.4.3). `None` if only
    /// one direction is known, or if the round trip is negative because a clock was set.
    #[must_use]
    pub fn delay_origin(&self, way: PathDirection) -> Option<LinearDelay> {
        let line = self.min_delay(way)?;
        if self.same {
            return Some(LinearDelay {
                delay_ns: 0.0,
                slope: 0.0,
                ..line
            });
        }
        let round_trip_ns = self.round_trip_ns(self.centre_ns)?;
        (round_trip_ns >= 0.0).then(|| LinearDelay {
            delay_ns: line.delay_ns - round_trip_ns / 2.0,
            ..line
        })
    }

    /// Transit time in nanoseconds of a packet sent at `sent_ns`: its raw delay above
    /// [`delay_origin`](Self::delay_origin).
    #[must_use]
    pub fn one_way_ns(&self, way: PathDirection, sent_ns: i64, raw_delay_ns: i64) -> Option<f64> {
        Some(raw_delay_ns as f64 - self.delay_origin(way)?.at(sent_ns))
    }

    /// Drift of the receiver's clock relative to the sender's, in parts per million.
    #[must_use]
    pub fn drift_ppm(&self) -> Option<f64> {
        let slope = match (self.there, self.back) {
            (Some(there), _) => there.slope,
            (None, back) => other_way(back?.slope),
        };
        Some(slope * 1e6)
    }

    /// Offset of the receiver's clock ahead of the sender's at a time by the sender's, in
    /// nanoseconds. Assumes that the smallest delay is equal in both directions, which traces
    /// cannot show. With one clock it is 0.
    #[must_use]
    pub fn offset_ns(&self, at_ns: i64) -> Option<f64> {
        let (there, back) = (self.there?, self.back?);
        if self.same {
            return Some(0.0);
        }
        // The offset is half of the difference of both directions. The receiver's clock dates the
        // reverse direction, so its time is later by the offset.
        Some((there.at(at_ns) - back.at(at_ns)) / (2.0 + back.slope))
    }

    /// The smallest round trip in nanoseconds, for any clocks.
    #[must_use]
    pub fn round_trip_ns(&self, at_ns: i64) -> Option<f64> {
        let offset = self.offset_ns(at_ns)?;
        let there_then = at_ns.saturating_add(offset as i64);
        Some(self.there?.at(at_ns) + self.back?.at(there_then))
    }
}

/// Drift of the receiver's clock, in nanoseconds per nanosecond.
struct Drift {
    slope: f64,
    uncertainty: Option<f64>,
}

/// Minimum number of parts of a trace with a delay, to measure drift.
const MIN_PARTS: usize = 8;

impl Drift {
    /// Finds one drift for both directions that brings the lines closest to the delays. It is 0
    /// unless it explains the delays better than no drift: the lines must miss the minima of most
    /// parts by less than the drift turns them.
    fn new(there: &Raw, back: &Raw) -> Self {
        let closeness = |slope: f64| {
            let height = |raw: &Raw, slope: f64| {
                let line = LinearDelay::below(&raw.hull, slope);
                line.map_or(0.0, |line| line.at(raw.centre_ns) * raw.count)
            };
            height(there, slope) + height(back, other_way(slope))
        };
        let there_slopes = there.hull.slopes();
        let slopes = there_slopes.chain(back.hull.slopes().map(other_way));
        let slopes = slopes.chain([-MAX_SLOPE, 0.0, MAX_SLOPE]);
        let possible = slopes.filter(|slope| slope.abs() <= MAX_SLOPE);
        let best = possible.fold((0.0, f64::NEG_INFINITY), |best, slope| {
            let found = closeness(slope);
            if found > best.1 { (slope, found) } else { best }
        });
        let slope = best.0;
        let residuals = |raw: &Raw, slope: f64| {
            let line = LinearDelay::below(&raw.hull, slope);
            let parts = smallest_of_parts(&raw.points);
            parts
                .into_iter()
                .filter_map(move |point| Some(point.delay_ns as f64 - line?.at(point.at_ns)))
        };
        let residuals: Vec<f64> = residuals(there, slope)
            .chain(residuals(back, other_way(slope)))
            .collect();
        let span_ns = there.span_ns().max(back.span_ns());
        let is_reliable = residuals.len() >= MIN_PARTS && slope.abs() < MAX_SLOPE && span_ns > 0;
        let uncertainty = median(residuals)
            .filter(|_| is_reliable)
            .map(|residual_ns| 2.0 * residual_ns / span_ns as f64)
            .filter(|uncertainty| *uncertainty < MAX_SLOPE);
        let turns = uncertainty.is_some_and(|uncertainty| slope.abs() > uncertainty);
        Self {
            slope: if turns { slope } else { 0.0 },
            uncertainty,
        }
    }
}

/// The slope of one direction from that of the other, each by its sender's clock. If one clock is
/// faster by s, the other is slower by s / (1 + s).
fn other_way(slope: f64) -> f64 {
    -slope / (1.0 + slope)
}

const PARTS: usize = 64;

/// The smallest delay of each of 64 equal parts of the time, if it has any.
fn smallest_of_parts(points: &[DelayPoint]) -> Vec<DelayPoint> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    let span = last.at_ns.saturating_sub(first.at_ns) as f64;
    let mut parts = [None::<DelayPoint>; PARTS];
    for point in points {
        let x = point.at_ns.saturating_sub(first.at_ns) as f64;
        let part = ((x / span.max(1.0) * PARTS as f64) as usize).min(PARTS - 1);
        if parts[part].is_none_or(|smallest| point.delay_ns < smallest.delay_ns) {
            parts[part] = Some(*point);
        }
    }
    parts.into_iter().flatten().collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let (upper, lower) = (values.len() / 2, values.len().saturating_sub(1) / 2);
    Some((values.get(lower)? + values.get(upper)?) / 2.0)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// A packet each 10 ms for 300 s, with 75 ms of delay and a queue of usually a few
    /// milliseconds. The receiver's clock has this offset and drift. Sign 1 is towards the
    /// receiver, -1 towards the sender.
    fn noisy(ahead_ns: f64, ppm: f64, seed: u64, sign: f64) -> Minima {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut minima = Minima::default();
        for packet in 0..30_000 {
            let at_ns = packet * SECOND / 100;
            let queue_ms = -3.0 * f64::ln(random.random_range(f64::MIN_POSITIVE..1.0));
            let ahead_ns = ahead_ns + at_ns as f64 * ppm / 1e6;
            let sent_ns = if sign > 0.0 { 0.0 } else { ahead_ns };
            minima.add(DelayPoint {
                at_ns: at_ns + sent_ns as i64,
                delay_ns: (75e6 + queue_ms * 1e6 + sign * ahead_ns) as i64,
            });
        }
        minima
    }

    #[test]
    fn drift_is_found_below_queueing_noise() {
        for (seed, ppm) in [(1, 100.0), (2, -100.0), (3, 0.0), (4, 17.0)] {
            let (there, back) = (noisy(5e9, ppm, seed, 1.0), noisy(5e9, ppm, seed + 50, -1.0));
            let clock = Clock::new(&there, &back, false);
            let found = clock.drift_ppm().unwrap();
            assert!((found - ppm).abs() < 0.5, "{found} ppm instead of {ppm}");
            let offset = clock.offset_ns(0).unwrap();
            assert!((offset - 5e9).abs() < 0.1e6, "ahead by {offset} ns");
            let round_trip = clock.round_trip_ns(100 * SECOND).unwrap();
            assert!((round_trip - 150e6).abs() < 0.2e6, "{round_trip} ns");
            let raw_delay_ns = (80e6 + 5e9 + 100e9 * ppm / 1e6) as i64;
            let one_way = clock.one_way_ns(PathDirection::ToReceiver, 100 * SECOND, raw_delay_ns);
            assert!((one_way.unwrap() - 80e6).abs() < 0.2e6, "{one_way:?}");
        }
    }

    #[test]
    fn clock_decades_off_with_drift_gives_equal_delays() {
        for (ahead_ns, ppm) in [
            (-1.7e18, -300.0),
            (-1.7e18, 50.0),
            (1e18, -900.0),
            (8.64e13, 300.0),
        ] {
            let ways = [(5, 1.0), (6, -1.0)].map(|(seed, sign)| noisy(ahead_ns, ppm, seed, sign));
            let clock = Clock::new(&ways[0], &ways[1], false);
            let round_trip = clock.round_trip_ns(100 * SECOND).unwrap();
            assert!((round_trip - 150e6).abs() < 0.2e6, "{round_trip} ns");
            let offset = clock.offset_ns(100 * SECOND).unwrap() - ahead_ns;
            assert!((offset - 100e9 * ppm / 1e6).abs() < 0.1e6, "{offset} ns");
            let drift = clock.drift_ppm().unwrap();
            assert!((drift - ppm).abs() < 0.5, "{drift} ppm");
        }
    }

    #[test]
    fn queue_at_start_does_not_tilt_hull() {
        let mut minima = Minima::default();
        for packet in 0..30_000_i64 {
            let at_ns = packet * SECOND / 100;
            let queue_ns = if packet < 1_000 {
                40_000_000
            } else {
                packet % 7 * 1_000_000
            };
            minima.add(DelayPoint {
                at_ns,
                delay_ns: 75_000_000 + queue_ns + at_ns / 20_000,
            });
        }
        let hull = Clock::new(&minima, &Minima::default(), false)
            .there
            .unwrap();
        assert!((hull.slope * 1e6 - 50.0).abs() < 0.5, "{hull:?}");
        let variation = 115e6 - hull.at(0);
        assert!((variation - 40e6).abs() < 0.1e6, "{variation}");
    }

    #[test]
    fn one_clock_has_neither_offset_nor_drift() {
        let (there, back) = (noisy(5e9, 0.0, 1, 1.0), noisy(5e9, 0.0, 2, -1.0));
        let clock = Clock::new(&there, &back, true);
        assert_eq!(
            (clock.drift_ppm(), clock.offset_ns(SECOND)),
            (Some(0.0), Some(0.0))
        );
        let hull = clock.there.unwrap();
        assert_eq!(
            (
                hull.slope,
                clock.one_way_ns(PathDirection::ToReceiver, 7, 99)
            ),
            (0.0, Some(99.0))
        );
        assert!(
            hull.delay_ns >= 5_075e6 && hull.delay_ns < 5_075.1e6,
            "{hull:?}"
        );
    }

    /// This many packets in this many milliseconds, with queues.
    fn short(packets: i64, span_ms: i64, seed: u64) -> Minima {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut raw = Minima::default();
        for packet in 0..packets {
            raw.add(DelayPoint {
                at_ns: packet * span_ms * 1_000_000 / packets,
                delay_ns: 75_000_000 + random.random_range(0..60_000_000),
            });
        }
        raw
    }

    #[test]
    fn unmeasurable_drift_counts_as_zero() {
        for seed in 0..50 {
            let (there, back) = (short(30, 2000, seed), short(30, 2000, seed + 50));
            let clock = Clock::new(&there, &back, false);
            assert_eq!(
                (clock.drift_ppm(), clock.drift_uncertainty),
                (Some(0.0), None)
            );
            let round_trip_ms = clock.round_trip_ns(0).unwrap() / 1e6;
            assert!(
                (150.0..170.0).contains(&round_trip_ms),
                "{round_trip_ms} ms"
            );
        }
    }

    #[test]
    fn clock_that_was_set_gives_no_delays() {
        let (mut there, mut back) = (Minima::default(), Minima::default());
        for packet in 0..1000 {
            let set_ns = if packet < 500 { 0 } else { -400_000_000 };
            let at_ns = packet * SECOND;
            there.add(DelayPoint {
                at_ns,
                delay_ns: 75_000_000 + set_ns,
            });
            back.add(DelayPoint {
                at_ns,
                delay_ns: 75_000_000 - set_ns,
            });
        }
        let clock = Clock::new(&there, &back, false);
        assert_eq!(
            clock.one_way_ns(PathDirection::ToReceiver, 0, 80_000_000),
            None
        );
    }
}
