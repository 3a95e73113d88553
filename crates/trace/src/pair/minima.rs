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

#[cfg(test)]
mod tests {
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
}
