//! Smallest delays over time: of equal intervals, and along any slope.

use std::ops::Range;

/// The smallest delays over time: a trace of any length in a bounded number of intervals of
/// equal width. Where the trace outgrows them, they are joined by twos.
#[derive(Debug, Clone, Default)]
pub(crate) struct Minima {
    origin_ns: Option<i64>,
    width_ns: u64,
    smallest: Vec<Option<Point>>,
    /// The interval of the last point, from the origin, and its place in `smallest`.
    interval: Range<u64>,
    place: usize,
    count: u64,
    sum_of_offsets_ns: f64,
}

/// A raw delay, and when it began, both in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) at_ns: i64,
    pub(crate) delay_ns: i64,
}

/// At a drift of 100 ppm the delay grows by 4 microseconds in one interval of a trace of five
/// minutes.
const INTERVALS: usize = 8192;
const FIRST_WIDTH_NS: u64 = 1_000_000;

impl Minima {
    #[inline]
    pub(crate) fn add(&mut self, point: Point) {
        let origin_ns = *self.origin_ns.get_or_insert(point.at_ns);
        let offset_ns = u64::try_from(point.at_ns.saturating_sub(origin_ns)).unwrap_or(0);
        self.count += 1;
        self.sum_of_offsets_ns += offset_ns as f64;
        if !self.interval.contains(&offset_ns) {
            self.go_to(offset_ns);
        }
        let smallest = &mut self.smallest[self.place];
        if smallest.is_none_or(|smallest| point.delay_ns < smallest.delay_ns) {
            *smallest = Some(point);
        }
    }

    fn go_to(&mut self, offset_ns: u64) {
        self.width_ns = self.width_ns.max(FIRST_WIDTH_NS);
        while offset_ns / self.width_ns >= INTERVALS as u64 {
            self.join();
        }
        self.place = (offset_ns / self.width_ns) as usize;
        let begin = self.place as u64 * self.width_ns;
        self.interval = begin..begin.saturating_add(self.width_ns);
        if self.smallest.len() <= self.place {
            self.smallest.resize(self.place + 1, None);
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
    pub(crate) fn points(&self) -> Vec<Point> {
        let mut points: Vec<_> = self.smallest.iter().copied().flatten().collect();
        points.sort_unstable_by_key(|point| point.at_ns);
        points
    }

    /// How many there were in all.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The mean of all points' times.
    pub(crate) fn centre_ns(&self) -> Option<i64> {
        let mean_ns = self.sum_of_offsets_ns / self.count as f64;
        Some(self.origin_ns?.saturating_add(mean_ns as i64))
    }
}

fn smaller(one: Option<Point>, other: Option<Point>) -> Option<Point> {
    match (one, other) {
        (Some(one), Some(other)) if other.delay_ns < one.delay_ns => Some(other),
        (None, other) => other,
        (one, _) => one,
    }
}

/// Of points in time those that are the lowest for some slope of a line below all of them, within
/// [`MOST_SLOPE`]: the part of their lower convex hull that a clock's drift can turn to the
/// bottom. They are few, and what is least above any such line is among them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hull {
    /// In order of time.
    points: Vec<Point>,
}

/// Two clocks do not drift apart faster, in nanoseconds for each: both adjusted by NTP at its
/// fastest, 500 ppm (RFC 5905), against each other.
pub(crate) const MOST_SLOPE: f64 = 1e-3;

/// More are never kept. Then every second one goes; what is least is right to a hair.
const MOST: usize = 4096;

impl Hull {
    #[inline]
    pub(crate) fn add(&mut self, point: Point) {
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

    /// Adds one that is later than all others.
    #[inline]
    fn append(&mut self, point: Point) {
        while let Some(last) = self.points.last()
            && (falls(last, &point)
                || matches!(&self.points[..], [.., first, last] if !turns_up(first, last, &point)))
        {
            self.points.pop();
        }
        self.points.push(point);
        if self.points.len() > MOST {
            self.thin();
        }
    }

    fn insert(&mut self, point: Point) {
        let mut place = self.points.partition_point(|it| it.at_ns <= point.at_ns);
        let before = place.checked_sub(1).and_then(|it| self.points.get(it));
        let behind = self.points.get(place);
        let hidden = before.is_some_and(|before| rises(before, &point))
            || behind.is_some_and(|behind| falls(&point, behind))
            || before
                .zip(behind)
                .is_some_and(|(before, behind)| !turns_up(before, &point, behind));
        if hidden {
            return;
        }
        while let Some(next) = self.points.get(place)
            && (rises(&point, next)
                || (self.points.get(place + 1)).is_some_and(|after| !turns_up(&point, next, after)))
        {
            self.points.remove(place);
        }
        while let Some(last) = place.checked_sub(1)
            && (falls(&self.points[last], &point)
                || (last.checked_sub(1)).is_some_and(|first| {
                    !turns_up(&self.points[first], &self.points[last], &point)
                }))
        {
            self.points.remove(last);
            place = last;
        }
        self.points.insert(place, point);
        if self.points.len() > MOST {
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

    /// The lowest point seen along a slope.
    pub(crate) fn lowest(&self, slope: f64) -> Option<Point> {
        let first = self.points.first()?;
        let above = |point: &Point| {
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

/// How much later and how much higher.
#[inline]
fn across(from: &Point, to: &Point) -> (f64, f64) {
    (
        to.at_ns.wrapping_sub(from.at_ns) as f64,
        to.delay_ns.wrapping_sub(from.delay_ns) as f64,
    )
}

/// Whether the way from one point to a later one is too steep for the later one to be lowest.
#[inline]
fn rises(from: &Point, to: &Point) -> bool {
    let (later, higher) = across(from, to);
    higher >= MOST_SLOPE * later
}

/// Whether it falls so steeply that the earlier one cannot be the lowest.
#[inline]
fn falls(from: &Point, to: &Point) -> bool {
    let (later, higher) = across(from, to);
    -higher >= MOST_SLOPE * later
}

/// Whether the middle one lies below the line between the others.
#[inline]
fn turns_up(from: &Point, middle: &Point, to: &Point) -> bool {
    let ((first, up), (second, more)) = (across(from, middle), across(middle, to));
    up * second < more * first
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn the_smallest_delay_survives_however_long_the_trace() {
        let mut minima = Minima::default();
        for second in 0..100_000 {
            let delay_ns = if second == 777 { 1 } else { 100 };
            minima.add(Point {
                at_ns: second * 1_000_000_000,
                delay_ns,
            });
        }
        let points = minima.points();
        assert!(points.len() <= INTERVALS);
        assert!(points.contains(&Point {
            at_ns: 777_000_000_000,
            delay_ns: 1
        }));
    }

    #[test]
    fn the_lowest_of_all_points_is_kept_for_any_slope() {
        for seed in 0..50 {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let mut hull = Hull::default();
            let mut all = Vec::new();
            for number in 0..500 {
                let point = Point {
                    at_ns: number * 1_000_000 + random.random_range(-30_000_000..30_000_000),
                    delay_ns: random.random_range(0..200_000),
                };
                hull.add(point);
                all.push(point);
            }
            for slope in [-MOST_SLOPE, -1e-4, 0.0, 3e-5, MOST_SLOPE] {
                let value = |point: &Point| point.delay_ns as f64 - slope * point.at_ns as f64;
                let least = all.iter().map(value).fold(f64::INFINITY, f64::min);
                let found = value(&hull.lowest(slope).unwrap());
                assert!((found - least).abs() < 1e-3, "seed {seed}, slope {slope}");
            }
            assert!(hull.points.len() < 100);
        }
    }

    #[test]
    fn points_of_a_bowl_do_not_take_memory_for_each() {
        let mut hull = Hull::default();
        for number in -20_000_i64..20_000 {
            hull.add(Point {
                at_ns: number * 1_000_000_000,
                delay_ns: number * number,
            });
        }
        assert!(hull.points.len() <= MOST);
    }
}
