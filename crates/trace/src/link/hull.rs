//! Minimum delays over time: per interval, and along any slope.

use std::ops::Range;

/// Minimum delays in a bounded number of equal intervals, for a trace of any length. If the trace
/// grows beyond them, pairs of intervals are merged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Minima {
    origin_ns: Option<i64>,
    width_ns: u64,
    smallest: Vec<Option<DelayPoint>>,
    /// The interval of the last point, from the origin, and its index in `smallest`.
    interval: Range<u64>,
    index: usize,
    count: u64,
    sum_of_offsets_ns: f64,
}

/// A raw delay and its transmission time, both in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DelayPoint {
    pub(crate) at_ns: i64,
    pub(crate) delay_ns: i64,
}

/// At a drift of 100 ppm, the delay grows by 4 microseconds per interval in a trace of five
/// minutes.
const INTERVALS: usize = 8192;
const FIRST_WIDTH_NS: u64 = 1_000_000;

impl Minima {
    #[inline]
    pub(crate) fn add(&mut self, point: DelayPoint) {
        let origin_ns = *self.origin_ns.get_or_insert(point.at_ns);
        let offset_ns = u64::try_from(point.at_ns.saturating_sub(origin_ns)).unwrap_or(0);
        self.count += 1;
        self.sum_of_offsets_ns += offset_ns as f64;
        if !self.interval.contains(&offset_ns) {
            self.go_to(offset_ns);
        }
        let smallest = &mut self.smallest[self.index];
        if smallest.is_none_or(|smallest| point.delay_ns < smallest.delay_ns) {
            *smallest = Some(point);
        }
    }

    fn go_to(&mut self, offset_ns: u64) {
        self.width_ns = self.width_ns.max(FIRST_WIDTH_NS);
        while offset_ns / self.width_ns >= INTERVALS as u64 {
            self.join();
        }
        self.index = (offset_ns / self.width_ns) as usize;
        let start = self.index as u64 * self.width_ns;
        self.interval = start..start.saturating_add(self.width_ns);
        if self.smallest.len() <= self.index {
            self.smallest.resize(self.index + 1, None);
        }
    }

    fn join(&mut self) {
        self.width_ns *= 2;
        let pairs = self.smallest.chunks(2);
        self.smallest = pairs
            .map(|pair| pair.iter().copied().fold(None, smaller))
            .collect();
    }

    /// In order of time.
    pub(crate) fn points(&self) -> Vec<DelayPoint> {
        let mut points: Vec<_> = self.smallest.iter().copied().flatten().collect();
        points.sort_unstable_by_key(|point| point.at_ns);
        points
    }

    /// Number of all points.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The mean of all points' times.
    pub(crate) fn centre_ns(&self) -> Option<i64> {
        let mean_ns = self.sum_of_offsets_ns / self.count as f64;
        Some(self.origin_ns?.saturating_add(mean_ns as i64))
    }
}

fn smaller(one: Option<DelayPoint>, other: Option<DelayPoint>) -> Option<DelayPoint> {
    match (one, other) {
        (Some(one), Some(other)) if other.delay_ns < one.delay_ns => Some(other),
        (None, other) => other,
        (one, _) => one,
    }
}

/// The part of the lower convex hull of points that a slope within [`MAX_SLOPE`] can reach. It has
/// few points, and contains the lowest point for any such slope.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hull {
    /// In order of time.
    points: Vec<DelayPoint>,
}

/// Maximum drift between two clocks, in nanoseconds per nanosecond: both adjusted by NTP at its
/// maximum, 500 ppm (RFC 5905), in opposite directions.
pub(crate) const MAX_SLOPE: f64 = 1e-3;

/// Maximum number of points. Beyond it, every second point is dropped, with negligible error.
const MAX_HULL_POINTS: usize = 4096;

impl Hull {
    #[inline]
    pub(crate) fn add(&mut self, point: DelayPoint) {
        match self.points.last() {
            None => self.points.push(point),
            Some(last) if point.at_ns >= last.at_ns => {
                if !rises(last, &point) {
                    self.append(point);
                }
            }
            Some(_) => self.insert(point),
        }
    }

    /// Adds a point later than all others.
    #[inline]
    fn append(&mut self, point: DelayPoint) {
        while let Some(last) = self.points.last()
            && (falls(last, &point)
                || matches!(&self.points[..], [.., first, last] if !turns_up(first, last, &point)))
        {
            self.points.pop();
        }
        self.points.push(point);
        if self.points.len() > MAX_HULL_POINTS {
            self.thin();
        }
    }

    fn insert(&mut self, point: DelayPoint) {
        let mut index = self.points.partition_point(|it| it.at_ns <= point.at_ns);
        let before = index.checked_sub(1).and_then(|it| self.points.get(it));
        let after = self.points.get(index);
        let hidden = before.is_some_and(|before| rises(before, &point))
            || after.is_some_and(|after| falls(&point, after))
            || before
                .zip(after)
                .is_some_and(|(before, after)| !turns_up(before, &point, after));
        if hidden {
            return;
        }
        while let Some(next) = self.points.get(index)
            && (rises(&point, next)
                || (self.points.get(index + 1)).is_some_and(|after| !turns_up(&point, next, after)))
        {
            self.points.remove(index);
        }
        while let Some(last) = index.checked_sub(1)
            && (falls(&self.points[last], &point)
                || (last.checked_sub(1)).is_some_and(|first| {
                    !turns_up(&self.points[first], &self.points[last], &point)
                }))
        {
            self.points.remove(last);
            index = last;
        }
        self.points.insert(index, point);
        if self.points.len() > MAX_HULL_POINTS {
            self.thin();
        }
    }

    #[cold]
    fn thin(&mut self) {
        let mut number = 0_u32;
        self.points.retain(|_| {
            number += 1;
            number % 2 == 1
        });
    }

    /// The lowest point along a slope.
    pub(crate) fn lowest(&self, slope: f64) -> Option<DelayPoint> {
        let first = self.points.first()?;
        let above = |point: &DelayPoint| {
            let later_ns = point.at_ns.saturating_sub(first.at_ns) as f64;
            point.delay_ns.saturating_sub(first.delay_ns) as f64 - slope * later_ns
        };
        let points = self.points.iter();
        points
            .min_by(|one, other| above(one).total_cmp(&above(other)))
            .copied()
    }

    /// The slopes at which another point becomes the lowest.
    pub(crate) fn slopes(&self) -> impl Iterator<Item = f64> {
        self.points.windows(2).filter_map(|pair| match pair {
            [one, next] if next.at_ns > one.at_ns => {
                let rise = next.delay_ns.saturating_sub(one.delay_ns) as f64;
                Some(rise / next.at_ns.saturating_sub(one.at_ns) as f64)
            }
            _ => None,
        })
    }
}

/// Differences in time and delay.
#[inline]
fn across(from: &DelayPoint, to: &DelayPoint) -> (f64, f64) {
    (
        to.at_ns.wrapping_sub(from.at_ns) as f64,
        to.delay_ns.wrapping_sub(from.delay_ns) as f64,
    )
}

/// Whether the rise is too steep for the later point to be lowest.
#[inline]
fn rises(from: &DelayPoint, to: &DelayPoint) -> bool {
    let (later, higher) = across(from, to);
    higher >= MAX_SLOPE * later
}

/// Whether the fall is too steep for the earlier point to be lowest.
#[inline]
fn falls(from: &DelayPoint, to: &DelayPoint) -> bool {
    let (later, higher) = across(from, to);
    -higher >= MAX_SLOPE * later
}

/// Whether the middle point lies below the line between the others.
#[inline]
fn turns_up(from: &DelayPoint, middle: &DelayPoint, to: &DelayPoint) -> bool {
    let ((first, up), (second, more)) = (across(from, middle), across(middle, to));
    up * second < more * first
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn minima_keep_smallest_delay_of_long_trace() {
        let mut minima = Minima::default();
        for second in 0..100_000 {
            let delay_ns = if second == 777 { 1 } else { 100 };
            minima.add(DelayPoint {
                at_ns: second * 1_000_000_000,
                delay_ns,
            });
        }
        let points = minima.points();
        assert!(points.len() <= INTERVALS);
        assert!(points.contains(&DelayPoint {
            at_ns: 777_000_000_000,
            delay_ns: 1
        }));
    }

    #[test]
    fn hull_keeps_lowest_point_for_any_slope() {
        for seed in 0..50 {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let mut hull = Hull::default();
            let mut all = Vec::new();
            for number in 0..500 {
                let point = DelayPoint {
                    at_ns: number * 1_000_000 + random.random_range(-30_000_000..30_000_000),
                    delay_ns: random.random_range(0..200_000),
                };
                hull.add(point);
                all.push(point);
            }
            for slope in [-MAX_SLOPE, -1e-4, 0.0, 3e-5, MAX_SLOPE] {
                let value = |point: &DelayPoint| point.delay_ns as f64 - slope * point.at_ns as f64;
                let expected = all.iter().map(value).fold(f64::INFINITY, f64::min);
                let found = value(&hull.lowest(slope).unwrap());
                assert!(
                    (found - expected).abs() < 1e-3,
                    "seed {seed}, slope {slope}"
                );
            }
            assert!(hull.points.len() < 100);
        }
    }

    #[test]
    fn hull_of_convex_points_is_bounded() {
        let mut hull = Hull::default();
        for number in -20_000_i64..20_000 {
            hull.add(DelayPoint {
                at_ns: number * 1_000_000_000,
                delay_ns: number * number,
            });
        }
        assert!(hull.points.len() <= MAX_HULL_POINTS);
    }
}
