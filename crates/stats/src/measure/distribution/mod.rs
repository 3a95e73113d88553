mod values;

use values::{ExactValues, Histogram};

use crate::measure::{Step, nearest_rank, thinned};

pub use values::Moments;

/// Distribution of non-negative values: times in nanoseconds, sizes in bytes, packets.
///
/// Count, minimum, maximum, mean and standard deviation are exact. Quantiles are exact up to 4,096
/// values. Beyond that, they are rounded up by less than 0.1 % in nearly constant memory, or come
/// from a random sample.
///
/// An empty distribution takes one word of memory. Most connections of a trace can be connection
/// attempts, and each connection has 26 distributions.
#[derive(Debug, Clone, Default)]
pub struct Distribution(Option<Box<NonEmpty>>);

/// Data of a distribution with at least one value.
#[derive(Debug, Clone)]
struct NonEmpty {
    /// All values except the last run.
    values: Values,
    /// The last run of equal values, such as the sizes of packets. Runs are stored at their end,
    /// because the end of a list has left the cache by the time of its next value.
    last: u64,
    last_times: u64,
    /// Values that quantiles do not use, because a sample represents them.
    unsampled: u64,
    moments: Moments,
}

#[derive(Debug, Clone)]
enum Values {
    /// Sorted after [`Distribution::finalize`].
    All(ExactValues),
    Histogram(Histogram),
}

const MAX_EXACT: usize = 4096;

impl Distribution {
    /// Adds a value; a negative value counts as 0.
    #[inline]
    pub fn record(&mut self, value: i64) {
        let value = value.max(0).unsigned_abs();
        match &mut self.0 {
            Some(filled) => filled.record(value),
            None => self.init(value),
        }
    }

    #[cold]
    #[inline(never)]
    fn init(&mut self, first: u64) {
        let mut filled = Box::new(NonEmpty {
            values: Values::All(ExactValues::default()),
            last: first,
            last_times: 0,
            unsampled: 0,
            moments: Moments::starting_at(first),
        });
        filled.record(first);
        self.0 = Some(filled);
    }

    /// A distribution of `moments.count` values, of which only a sample exists. Each sampled value
    /// represents an equal number of values.
    pub fn from_sample(moments: Moments, sample: impl ExactSizeIterator<Item = i64>) -> Self {
        let size = sample.len() as u64;
        // Minimum and maximum are known exactly, so they are not sampled.
        let others = moments.count.saturating_sub(2);
        let (each, more) = (others / size.max(1), others % size.max(1));
        let mut filled = NonEmpty {
            values: Values::Histogram(Histogram::default()),
            last: 0,
            last_times: 0,
            unsampled: moments.count.saturating_sub(size),
            moments,
        };
        for (index, value) in (0..).zip(sample) {
            let value = value.max(0).unsigned_abs();
            let value = value.clamp(moments.smallest, moments.largest);
            filled.store(value, each + u64::from(index < more));
        }
        filled.store(moments.smallest, 1);
        filled.store(moments.largest, 1);
        Self(Some(Box::new(filled)))
    }

    /// Exact moments; `None` without values.
    pub fn moments(&self) -> Option<Moments> {
        Some(self.0.as_ref()?.moments)
    }

    /// Adds `by` to each value; negative results count as 0.
    pub fn shift(&mut self, by: i64) {
        if by != 0
            && let Some(filled) = &mut self.0
        {
            filled.shift(by);
        }
    }

    /// Number of values in the random sample; `None` if quantiles use all values.
    #[must_use]
    pub fn sample(&self) -> Option<u64> {
        let filled = self.0.as_ref()?;
        (filled.unsampled > 0).then(|| filled.moments.count - filled.unsampled)
    }

    /// Adds all values of another distribution.
    pub fn add(&mut self, other: &Self) {
        match (&mut self.0, &other.0) {
            (_, None) => {}
            (Some(own), Some(other)) => own.add(other),
            (none, other) => none.clone_from(other),
        }
    }

    /// Sorts the values. Required before quantiles and single values are read.
    pub fn finalize(&mut self) {
        if let Some(filled) = &mut self.0 {
            filled.store_last();
            if let Values::All(all) = &mut filled.values {
                all.sort();
            }
        }
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.as_ref().map_or(0, |filled| filled.moments.count)
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether quantiles are exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        let all = |filled: &NonEmpty| matches!(filled.values, Values::All(_));
        self.0.as_deref().is_none_or(all)
    }

    /// The smallest value.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        Some(self.0.as_ref()?.moments.smallest)
    }

    /// The largest value.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        Some(self.0.as_ref()?.moments.largest)
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let moments = self.moments()?;
        Some(moments.first as f64 + moments.sum / moments.count as f64)
    }

    /// The sample standard deviation; `None` for fewer than two values.
    #[must_use]
    pub fn sd(&self) -> Option<f64> {
        let moments = self.moments()?;
        let count = moments.count as f64;
        let spread = moments.sum_of_squares - moments.sum * moments.sum / count;
        (moments.count > 1).then(|| (spread.max(0.0) / (count - 1.0)).sqrt())
    }

    /// The `q` quantile by nearest rank: the smallest value that at least a share `q` of all values
    /// does not exceed. `q` is limited to 0 to 1.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let filled = self.0.as_ref()?;
        let Moments {
            count,
            smallest,
            largest,
            ..
        } = filled.moments;
        let rank = nearest_rank(q, count)?;
        match &filled.values {
            Values::All(all) => all.get(rank as usize - 1),
            Values::Histogram(histogram) => {
                let value = histogram.value_at_rank(rank).unwrap_or(largest);
                Some(value.clamp(smallest, largest))
            }
        }
    }

    /// Distinct values in ascending order, each with its count.
    #[must_use]
    pub fn steps(&self) -> Vec<(u64, u64)> {
        let Some(filled) = &self.0 else {
            return Vec::new();
        };
        match &filled.values {
            Values::All(all) => {
                let mut steps: Vec<(u64, u64)> = Vec::new();
                for value in all.iter() {
                    match steps.last_mut() {
                        Some((same, times)) if *same == value => *times += 1,
                        _ => steps.push((value, 1)),
                    }
                }
                steps
            }
            Values::Histogram(histogram) => {
                let within =
                    |value: u64| value.clamp(filled.moments.smallest, filled.moments.largest);
                let steps = histogram.iter();
                steps.map(|(value, times)| (within(value), times)).collect()
            }
        }
    }

    /// The cumulative distribution: values in ascending order, each with the share of values that
    /// do not exceed it. At most 1,000 points: the tail is exact, the body is thinned below the
    /// resolution of a figure.
    #[must_use]
    pub fn curve(&self) -> Vec<(u64, f64)> {
        let count = self.len() as f64;
        let steps = thinned(self.steps()).into_iter();
        steps
            .map(|Step { value, rank }| (value, rank as f64 / count))
            .collect()
    }

    /// The complementary cumulative distribution at the values of [`curve`](Self::curve): each with
    /// the share of values that exceed it. Ends with 0.
    #[must_use]
    pub fn complement(&self) -> Vec<(u64, f64)> {
        let count = self.len();
        let steps = thinned(self.steps()).into_iter();
        steps
            .map(|Step { value, rank }| (value, count.saturating_sub(rank) as f64 / count as f64))
            .collect()
    }
}

impl NonEmpty {
    #[inline]
    fn record(&mut self, value: u64) {
        self.moments.record(value);
        if value != self.last {
            self.store_last();
            self.last = value;
        }
        self.last_times += 1;
    }

    /// Stores the last run.
    fn store_last(&mut self) {
        let times = std::mem::take(&mut self.last_times);
        self.store(self.last, times);
    }

    fn shift(&mut self, by: i64) {
        self.store_last();
        let shifted = |value: u64| value.saturating_add_signed(by);
        let moments = &mut self.moments;
        for value in [
            &mut moments.smallest,
            &mut moments.largest,
            &mut moments.first,
        ] {
            *value = shifted(*value);
        }
        match &mut self.values {
            Values::All(all) => *all = all.iter().map(shifted).collect(),
            Values::Histogram(histogram) => {
                let mut higher = Histogram::default();
                for (value, times) in histogram.iter() {
                    higher.add(shifted(value), times);
                }
                *histogram = higher;
            }
        }
    }

    #[inline]
    fn store(&mut self, value: u64, times: u64) {
        match &mut self.values {
            Values::All(all) if all.len() as u64 + times <= MAX_EXACT as u64 => {
                (0..times).for_each(|_| all.push(value));
            }
            Values::All(_) => {
                self.round();
                self.store(value, times);
            }
            Values::Histogram(histogram) => histogram.add(value, times),
        }
    }

    #[cold]
    fn round(&mut self) {
        if let Values::All(all) = &self.values {
            let mut histogram = Histogram::default();
            for value in all.iter() {
                histogram.add(value, 1);
            }
            self.values = Values::Histogram(histogram);
        }
    }

    fn add(&mut self, other: &Self) {
        self.store_last();
        self.unsampled += other.unsampled;
        self.moments.add(&other.moments);
        match (&mut self.values, &other.values) {
            (Values::Histogram(own), Values::All(all)) => all.for_each(|value| own.add(value, 1)),
            (_, Values::All(all)) => all.for_each(|value| self.store(value, 1)),
            (_, Values::Histogram(histogram)) => {
                self.round();
                for (value, times) in histogram.iter() {
                    self.store(value, times);
                }
            }
        }
        self.store(other.last, other.last_times);
    }
}

impl FromIterator<i64> for Distribution {
    fn from_iter<I: IntoIterator<Item = i64>>(values: I) -> Self {
        let mut distribution = Self::default();
        values
            .into_iter()
            .for_each(|value| distribution.record(value));
        distribution
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distribution_of(values: impl IntoIterator<Item = i64>) -> Distribution {
        let mut distribution = Distribution::default();
        for value in values {
            distribution.record(value);
        }
        distribution.finalize();
        distribution
    }

    #[test]
    fn quantiles_of_few_values_are_nearest_rank() {
        let all = distribution_of((1..=100).rev());
        for rank in 1..=100 {
            assert_eq!(all.quantile(rank as f64 / 100.0), Some(rank));
        }
        assert_eq!(
            (all.quantile(-1.0), all.quantile(9.0)),
            (Some(1), Some(100))
        );
        assert_eq!(
            (all.mean(), all.min(), all.max()),
            (Some(50.5), Some(1), Some(100))
        );
        assert!((all.sd().unwrap() - 29.011).abs() < 0.001);
        assert!(all.is_exact());
    }

    #[test]
    fn quantiles_of_many_values_are_exact_to_three_digits() {
        let all = distribution_of((1..=100_000).map(|value| value * 10_007));
        assert!(!all.is_exact());
        for percent in [1.0, 10.0, 50.0, 97.0, 99.0] {
            let exact = percent * 1000.0 * 10_007.0;
            let found = all.quantile(percent / 100.0).unwrap() as f64;
            assert!(
                (0.0..0.001).contains(&(found / exact - 1.0)),
                "{found} for {exact}"
            );
        }
        assert_eq!(all.max(), Some(100_000 * 10_007));
        assert_eq!(
            all.steps().iter().map(|(_, times)| times).sum::<u64>(),
            100_000
        );
        assert!((all.mean().unwrap() / (50_000.5 * 10_007.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn curve_of_few_values_has_each_value() {
        let few = distribution_of([10, 30, 10, 20]);
        assert_eq!(few.curve(), [(10, 0.5), (20, 0.75), (30, 1.0)]);
        assert_eq!(few.complement(), [(10, 0.5), (20, 0.25), (30, 0.0)]);
    }

    #[test]
    fn curve_of_many_values_has_exact_tail() {
        const COUNT: i64 = 1_000_000;
        let all = distribution_of((1..=COUNT).map(|index| 10 * COUNT / index));
        let tail = all.complement();
        assert!(tail.len() <= 1000 && tail.is_sorted_by(|one, next| one.1 > next.1));
        let rarest = tail.len() - 10..tail.len();
        let shares = tail[rarest].iter().map(|(_, share)| (share * 1e6).round());
        assert!(shares.eq((0..10).rev().map(f64::from)));
        // Before the tail, neighbouring shares differ by less than a log axis shows.
        for pair in tail.windows(2).filter(|pair| pair[1].1 > 1e-5) {
            assert!(pair[1].1 / pair[0].1 > 0.9, "{pair:?}");
        }
    }

    #[test]
    fn sum_of_two_distributions_equals_one_of_all_values() {
        for many in [30, 3000, 9000] {
            let (mut low, high) = (distribution_of(0..many), distribution_of(many..2 * many));
            low.add(&high);
            low.finalize();
            let all = distribution_of(0..2 * many);
            assert_eq!(low.steps(), all.steps());
            assert!((low.mean().unwrap() - all.mean().unwrap()).abs() < 1e-6);
            assert!((low.sd().unwrap() - all.sd().unwrap()).abs() < 1e-6);
        }
    }

    #[test]
    fn empty_distribution_has_no_mean_and_no_quantile() {
        let none = distribution_of([]);
        assert_eq!(
            (none.quantile(0.5), none.mean(), none.sd()),
            (None, None, None)
        );
        assert!(none.steps().is_empty());
    }

    #[test]
    fn standard_deviation_of_large_close_values_is_exact() {
        let day_ns = 86_400_000_000_000;
        let all = distribution_of([day_ns, day_ns + 1000, day_ns + 2000]);
        assert!((all.sd().unwrap() - 1000.0).abs() < 1e-6);
    }
}
