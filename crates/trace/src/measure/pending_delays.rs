use pillion_stats::measure::{Distribution, Moments};
use rand::distr::Open01;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::link::hull::{DelayPoint, Hull};
use crate::pair::LinearDelay;

/// Delays by two clocks of unknown relation. All are stored while they are few.
///
/// Beyond that, a random sample provides quantiles. Sums and hulls provide count, minimum, maximum,
/// mean and standard deviation exactly above any line. A sample of every n-th delay would see only
/// one phase of periodic traffic.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingDelays {
    stored: Vec<DelayPoint>,
    all: Option<Box<RunningMoments>>,
}

/// Maximum number of stored delays.
pub(super) const MAX_STORED: usize = 16_384;

/// Statistics of all points, relative to any line.
#[derive(Debug, Clone)]
struct RunningMoments {
    first: DelayPoint,
    count: u64,
    /// Sums of times and delays since the first point, and of their products.
    time: f64,
    delay: f64,
    time_time: f64,
    time_delay: f64,
    delay_delay: f64,
    lowest: Hull,
    /// Hull of the negated delays.
    highest: Hull,
    /// `next`: number of the next point that replaces a stored one, so that all have equal
    /// probability (K.-H. Li, 1994, algorithm L). `largest`: the largest of as many random numbers
    /// as there are stored points.
    next: u64,
    largest: f64,
    /// Fixed seed, so that a trace always has the same results.
    random: Pcg64Mcg,
}

impl PendingDelays {
    #[inline]
    pub(super) fn push(&mut self, at_ns: i64, delay_ns: i64) {
        let point = DelayPoint { at_ns, delay_ns };
        if self.stored.len() < MAX_STORED {
            self.stored.push(point);
        } else {
            self.fold(point);
        }
    }

    fn fold(&mut self, point: DelayPoint) {
        let all = match &mut self.all {
            Some(all) => all,
            none => none.insert(Box::new(RunningMoments::new(&self.stored))),
        };
        all.add(point);
        if all.count == all.next {
            let index = all.skip();
            if let Some(stored) = self.stored.get_mut(index) {
                *stored = point;
            }
        }
    }

    pub(super) fn len(&self) -> u64 {
        let all = self.all.as_ref().map(|all| all.count);
        all.unwrap_or(self.stored.len() as u64)
    }

    /// The heights of all points above a line, in nanoseconds.
    pub(super) fn above(&self, line: LinearDelay) -> Distribution {
        let heights = self.heights(line);
        match &self.all {
            None => heights.collect(),
            Some(all) => Distribution::from_sample(all.moments(line), heights),
        }
    }

    /// The heights of all points at or above a line, and the number of points below. If points were
    /// dropped, the number is estimated from the sample.
    pub(super) fn at_or_above(&self, line: LinearDelay) -> (Distribution, u64) {
        let heights: Vec<i64> = self.heights(line).filter(|height| *height >= 0).collect();
        let (sample, stored) = (heights.len() as u64, self.stored.len() as u64);
        let below = stored - sample;
        match &self.all {
            _ if below == 0 => (self.above(line), 0),
            None => (heights.into_iter().collect(), below),
            Some(all) => {
                let count = all.count * sample / stored;
                (all.by_sample(line, count, &heights), all.count - count)
            }
        }
    }

    /// The heights of the stored points above a line.
    fn heights(&self, line: LinearDelay) -> impl ExactSizeIterator<Item = i64> + Clone {
        let points = self.stored.iter();
        points.map(move |point| (point.delay_ns as f64 - line.at(point.at_ns)).round() as i64)
    }
}

impl RunningMoments {
    fn new(points: &[DelayPoint]) -> Self {
        let mut folded = Self {
            first: points.first().copied().unwrap_or(DelayPoint {
                at_ns: 0,
                delay_ns: 0,
            }),
            count: 0,
            time: 0.0,
            delay: 0.0,
            time_time: 0.0,
            time_delay: 0.0,
            delay_delay: 0.0,
            lowest: Hull::default(),
            highest: Hull::default(),
            next: points.len() as u64,
            largest: 1.0,
            random: Pcg64Mcg::seed_from_u64(0),
        };
        folded.skip();
        points.iter().for_each(|point| folded.add(*point));
        folded
    }

    fn add(&mut self, point: DelayPoint) {
        self.count += 1;
        let time = point.at_ns.saturating_sub(self.first.at_ns) as f64;
        let delay = point.delay_ns.saturating_sub(self.first.delay_ns) as f64;
        self.time += time;
        self.delay += delay;
        self.time_time += time * time;
        self.time_delay += time * delay;
        self.delay_delay += delay * delay;
        self.lowest.add(point);
        self.highest.add(DelayPoint {
            delay_ns: point.delay_ns.saturating_neg(),
            ..point
        });
    }

    /// Chooses the next point to store; returns the index for the current one.
    #[cold]
    fn skip(&mut self) -> usize {
        let size = MAX_STORED as f64;
        let mut random_share = || self.random.sample::<f64, _>(Open01);
        self.largest *= (random_share().ln() / size).exp();
        let skipped = (random_share().ln() / (1.0 - self.largest).ln()).floor();
        self.next = self.next.saturating_add(skipped as u64).saturating_add(1);
        (random_share() * size) as usize
    }

    /// A distribution of `count` values from a sample of heights above a line.
    fn by_sample(&self, line: LinearDelay, count: u64, heights: &[i64]) -> Distribution {
        let heights = heights.iter().copied();
        let sample: Distribution = heights.clone().collect();
        let moments = sample.moments().map(|moments| Moments {
            largest: self.moments(line).largest,
            ..moments.times(count)
        });
        moments.map_or(sample, |moments| {
            Distribution::from_sample(moments, heights)
        })
    }

    fn moments(&self, line: LinearDelay) -> Moments {
        let slope = line.slope;
        let height = |point: DelayPoint| point.delay_ns as f64 - line.at(point.at_ns);
        let lowest = self.lowest.lowest(slope).map_or(0.0, height);
        let highest = self.highest.lowest(-slope).map(|point| DelayPoint {
            delay_ns: point.delay_ns.saturating_neg(),
            ..point
        });
        let exact = height(self.first);
        let first = exact.round().max(0.0);
        // Sums use differences from the first height.
        let (rest, count) = (exact - first, self.count as f64);
        let sum = self.delay - slope * self.time;
        let squares =
            self.delay_delay - 2.0 * slope * self.time_delay + slope * slope * self.time_time;
        Moments {
            count: self.count,
            smallest: lowest.round().max(0.0) as u64,
            largest: highest.map_or(0.0, height).round().max(0.0) as u64,
            first: first as u64,
            sum: sum + rest * count,
            sum_of_squares: squares + 2.0 * rest * sum + rest * rest * count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: LinearDelay = LinearDelay {
        at_ns: 5,
        delay_ns: 1000.0,
        slope: 2e-4,
    };

    /// Queueing of four segments that are sent at once.
    fn in_fours(count: i64) -> (PendingDelays, Vec<i64>) {
        let mut pending = PendingDelays::default();
        let mut heights = Vec::new();
        for number in 0..count {
            let at_ns = number * 1_000_000;
            let height_ns = [0, 100_000, 300_000, 700_000][(number % 4) as usize] + number % 997;
            pending.push(at_ns, LINE.at(at_ns).ceil() as i64 + height_ns);
            heights.push(height_ns);
        }
        (pending, heights)
    }

    #[test]
    fn moments_of_many_delays_are_exact() {
        let (pending, heights) = in_fours(1_000_000);
        let all = pending.above(LINE);
        let count = heights.len() as f64;
        let mean = heights.iter().sum::<i64>() as f64 / count;
        assert_eq!(all.len(), heights.len() as u64);
        let extreme =
            |found: Option<u64>, of: Option<&i64>| found.unwrap().abs_diff(*of.unwrap() as u64);
        assert!(extreme(all.min(), heights.iter().min()) <= 1);
        assert!(extreme(all.max(), heights.iter().max()) <= 1);
        assert!((all.mean().unwrap() - mean).abs() < 2.0);
        let squares = heights.iter().map(|height| (*height as f64 - mean).powi(2));
        let sd = (squares.sum::<f64>() / (count - 1.0)).sqrt();
        assert!((all.sd().unwrap() / sd - 1.0).abs() < 1e-4);
    }

    #[test]
    fn delays_below_line_are_counted_and_excluded() {
        for count in [1000, 1_000_000] {
            let (mut pending, _) = in_fours(count);
            for number in 0..count / 10 {
                let at_ns = number * 1_000_000;
                pending.push(at_ns, LINE.at(at_ns) as i64 - 5_000);
            }
            let (mut all, below) = pending.at_or_above(LINE);
            let (expected, total) = (count as u64 / 10, pending.len());
            assert!(
                below.abs_diff(expected) <= expected / 20,
                "{below} of {total}"
            );
            assert_eq!(all.len() + below, total);
            all.finalize();
            let (low, mean) = (all.quantile(0.2).unwrap(), all.mean().unwrap());
            assert!(low < 3000 && mean > 200_000.0, "{low}, {mean} of {count}");
        }
    }

    #[test]
    fn sample_of_periodic_traffic_covers_all_phases() {
        let (pending, _) = in_fours(1_000_000);
        let all = pending.above(LINE);
        for (share, height) in [(0.2, 0), (0.4, 100_000), (0.7, 300_000), (0.999, 700_000)] {
            let found = all.quantile(share).unwrap();
            assert!(
                (height..height + 3000).contains(&found),
                "{found} at {share}"
            );
        }
        assert_eq!(all.sample(), Some(MAX_STORED as u64));
        let counted: u64 = all.steps().iter().map(|(_, times)| times).sum();
        assert_eq!(counted, 1_000_000);
    }
}
