use super::minima::{Minima, Point};

/// How the clocks of both traces relate, and with it what the smallest delay was at any time.
///
/// Neither clock is taken for right: times are told by the sender's.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Clock {
    /// From the trace at the sender to the one at the receiver.
    pub there: Fit,
    /// Back.
    pub back: Fit,
    centre_ns: i64,
}

/// Which way a packet went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// From the host at the sender's trace to the one at the receiver's.
    There,
    /// Back.
    Back,
}

/// The smallest raw delay of one way as it changes over time, found in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Fit {
    /// The line below all delays that is closest to them on the whole: the edge of their lower
    /// convex hull at the mean time (S. B. Moon, P. Skelly, D. Towsley, INFOCOM 1999). No delay
    /// variation is negative by it.
    pub hull: Option<Line>,
    /// Through the smallest delays of 64 equal parts of the trace: the median of the slopes
    /// between any two (Theil and Sen), so that a few parts in which the queue never emptied, or
    /// in which copies were mistaken for each other, do not turn it.
    pub regression: Option<Line>,
}

/// A raw delay that changes linearly over time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// A time by the clock of the trace at the packets' sender, in nanoseconds.
    pub at_ns: i64,
    /// The raw delay at that time, in nanoseconds.
    pub delay_ns: f64,
    /// By how much it grows, in nanoseconds for each nanosecond.
    pub slope: f64,
}

impl Line {
    /// Its value at a time, in nanoseconds.
    #[must_use]
    pub fn at(&self, ns: i64) -> f64 {
        self.delay_ns + self.slope * ns.saturating_sub(self.at_ns) as f64
    }
}

impl Clock {
    pub(crate) fn of(there: &Minima, back: &Minima) -> Self {
        Self {
            there: Fit::of(there),
            back: Fit::of(back),
            centre_ns: there.centre_ns().unwrap_or_default(),
        }
    }

    /// The fit for one way.
    #[must_use]
    pub fn fit(&self, way: Way) -> &Fit {
        match way {
            Way::There => &self.there,
            Way::Back => &self.back,
        }
    }

    /// The time that a packet took which was sent at that time, in nanoseconds, by its raw delay
    /// and as [`offset_ns`](Self::offset_ns) assumes: half of the smallest round trip plus the
    /// delay variation (thesis, section 3.4.3).
    #[must_use]
    pub fn one_way_ns(&self, way: Way, sent_ns: i64, raw_delay_ns: i64) -> Option<f64> {
        let variation = self.fit(way).variation_ns(sent_ns, raw_delay_ns)?;
        Some(self.round_trip_ns(self.centre_ns)? / 2.0 + variation)
    }

    /// By how much the receiver's clock runs faster than the sender's, in parts per million, by
    /// the hulls of both ways, or of the one that was used.
    #[must_use]
    pub fn drift_ppm(&self) -> Option<f64> {
        let slope = match (self.there.hull, self.back.hull) {
            (Some(there), Some(back)) => (there.slope - back.slope) / 2.0,
            (Some(there), None) => there.slope,
            (None, back) => -back?.slope,
        };
        Some(slope * 1e6)
    }

    /// By how much the receiver's clock was ahead of the sender's at a time by the sender's, in
    /// nanoseconds, if the smallest delay is the same both ways. That it is cannot be known from
    /// traces.
    #[must_use]
    pub fn offset_ns(&self, at_ns: i64) -> Option<f64> {
        let (there, back) = (self.there.hull?, self.back.hull?);
        let offset = (there.at(at_ns) - back.at(at_ns)) / 2.0;
        // The way back is dated by the receiver's clock.
        let there_then = at_ns.saturating_add(offset as i64);
        Some((there.at(at_ns) - back.at(there_then)) / 2.0)
    }

    /// The smallest delay there and back together, in nanoseconds, whatever the clocks say.
    #[must_use]
    pub fn round_trip_ns(&self, at_ns: i64) -> Option<f64> {
        let offset = self.offset_ns(at_ns)?;
        let there_then = at_ns.saturating_add(offset as i64);
        Some(self.there.hull?.at(at_ns) + self.back.hull?.at(there_then))
    }
}

impl Fit {
    fn of(minima: &Minima) -> Self {
        let points = minima.points();
        Self {
            hull: minima
                .centre_ns()
                .and_then(|centre_ns| hull_edge(&points, centre_ns)),
            regression: regression(&points),
        }
    }

    /// Delay variation (RFC 5481, PDV), which is queueing delay where the path does not change:
    /// a raw delay minus the smallest one at that time, in nanoseconds.
    #[must_use]
    pub fn variation_ns(&self, sent_ns: i64, raw_delay_ns: i64) -> Option<f64> {
        Some(raw_delay_ns as f64 - self.hull?.at(sent_ns))
    }
}

/// The line through the edge of the lower convex hull that spans the centre.
fn hull_edge(points: &[Point], centre_ns: i64) -> Option<Line> {
    let origin = *points.first()?;
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for point in points {
        let x = point.at_ns.saturating_sub(origin.at_ns) as f64;
        let y = point.delay_ns.saturating_sub(origin.delay_ns) as f64;
        while let [.., before, last] = hull[..]
            && (last.0 - before.0) * (y - before.1) <= (last.1 - before.1) * (x - before.0)
        {
            hull.pop();
        }
        hull.push((x, y));
    }
    let centre = centre_ns.saturating_sub(origin.at_ns) as f64;
    let edges = hull.windows(2);
    let edge = edges
        .filter_map(|pair| match pair {
            [left, right] if right.0 > left.0 => Some((*left, *right)),
            _ => None,
        })
        .fold(None, |found, edge| match found {
            None => Some(edge),
            Some(_) if edge.0.0 <= centre => Some(edge),
            earlier => earlier,
        });
    let (left, slope) = match edge {
        Some((left, right)) => (left, (right.1 - left.1) / (right.0 - left.0)),
        None => (*hull.first()?, 0.0),
    };
    Some(Line {
        at_ns: origin.at_ns.saturating_add(left.0 as i64),
        delay_ns: origin.delay_ns as f64 + left.1,
        slope,
    })
}

const PARTS: usize = 64;

fn regression(points: &[Point]) -> Option<Line> {
    let (first, last) = (points.first()?, points.last()?);
    let span = last.at_ns.saturating_sub(first.at_ns) as f64;
    let mut parts = [None::<(f64, f64)>; PARTS];
    for point in points {
        let x = point.at_ns.saturating_sub(first.at_ns) as f64;
        let y = point.delay_ns.saturating_sub(first.delay_ns) as f64;
        let part = ((x / span.max(1.0) * PARTS as f64) as usize).min(PARTS - 1);
        if parts[part].is_none_or(|(_, smallest)| y < smallest) {
            parts[part] = Some((x, y));
        }
    }
    let smallest: Vec<(f64, f64)> = parts.into_iter().flatten().collect();
    let mut slopes = Vec::with_capacity(PARTS * (PARTS - 1) / 2);
    for (place, left) in smallest.iter().enumerate() {
        let later = smallest.iter().skip(place + 1);
        let apart = later.filter(|right| right.0 > left.0);
        slopes.extend(apart.map(|right| (right.1 - left.1) / (right.0 - left.0)));
    }
    let slope = median(slopes).unwrap_or_default();
    let levels = smallest.iter().map(|(x, y)| y - slope * x).collect();
    Some(Line {
        at_ns: first.at_ns,
        delay_ns: first.delay_ns as f64 + median(levels)?,
        slope,
    })
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

    /// A packet each 10 ms for 300 s, 75 ms on the way and a queue of mostly some milliseconds,
    /// the receiver's clock 5 s ahead and faster by so many parts per million; there with sign 1,
    /// back with sign -1.
    fn noisy(ppm: f64, seed: u64, sign: f64) -> Minima {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut minima = Minima::default();
        for packet in 0..30_000 {
            let at_ns = packet * SECOND / 100;
            let queue_ms = -3.0 * f64::ln(random.random_range(f64::MIN_POSITIVE..1.0));
            let ahead_ns = 5e9 + at_ns as f64 * ppm / 1e6;
            let sent_ns = if sign > 0.0 { 0.0 } else { ahead_ns };
            minima.add(Point {
                at_ns: at_ns + sent_ns as i64,
                delay_ns: (75e6 + queue_ms * 1e6 + sign * ahead_ns) as i64,
            });
        }
        minima
    }

    #[test]
    fn drift_is_found_below_queueing_noise() {
        for (seed, ppm) in [(1, 100.0), (2, -100.0), (3, 0.0), (4, 17.0)] {
            let (there, back) = (noisy(ppm, seed, 1.0), noisy(ppm, seed + 50, -1.0));
            let clock = Clock::of(&there, &back);
            let found = clock.drift_ppm().unwrap();
            assert!((found - ppm).abs() < 0.5, "{found} ppm instead of {ppm}");
            let offset = clock.offset_ns(0).unwrap();
            assert!((offset - 5e9).abs() < 0.1e6, "ahead by {offset} ns");
            let round_trip = clock.round_trip_ns(100 * SECOND).unwrap();
            assert!((round_trip - 150e6).abs() < 0.2e6, "{round_trip} ns");
            let raw_delay_ns = (80e6 + 5e9 + 100e9 * ppm / 1e6) as i64;
            let one_way = clock.one_way_ns(Way::There, 100 * SECOND, raw_delay_ns);
            assert!((one_way.unwrap() - 80e6).abs() < 0.2e6, "{one_way:?}");
            let regression = clock.there.regression.unwrap().slope * 1e6;
            assert!((regression - ppm).abs() < 3.0, "{regression} ppm");
        }
    }

    #[test]
    fn a_queue_at_the_beginning_does_not_tilt_the_hull() {
        let mut minima = Minima::default();
        for packet in 0..30_000_i64 {
            let at_ns = packet * SECOND / 100;
            let queue_ns = if packet < 1_000 {
                40_000_000
            } else {
                packet % 7 * 1_000_000
            };
            minima.add(Point {
                at_ns,
                delay_ns: 75_000_000 + queue_ns + at_ns / 20_000,
            });
        }
        let hull = Fit::of(&minima).hull.unwrap();
        assert!((hull.slope * 1e6 - 50.0).abs() < 0.5, "{hull:?}");
        let variation = Fit::of(&minima).variation_ns(0, 115_000_000).unwrap();
        assert!((variation - 40e6).abs() < 0.1e6, "{variation}");
    }
    #[test]
    fn a_part_with_nothing_but_a_mistake_does_not_turn_the_regression() {
        let mut minima = Minima::default();
        minima.add(Point {
            at_ns: 0,
            delay_ns: 1_075_000_000,
        });
        for packet in 100..30_000_i64 {
            let at_ns = packet * SECOND / 10;
            minima.add(Point {
                at_ns,
                delay_ns: 75_000_000 + packet % 7 * 1_000_000 + at_ns / 20_000,
            });
        }
        let regression = Fit::of(&minima).regression.unwrap();
        assert!(
            (regression.slope * 1e6 - 50.0).abs() < 0.5,
            "{regression:?}"
        );
        assert!((regression.at(0) - 75e6).abs() < 0.1e6, "{regression:?}");
    }
}
