mod values;

use values::{Exact, Rounded};

use crate::measure::{Step, nearest_rank, thinned};

pub use values::Moments;

/// The distribution of values that are not negative: times in nanoseconds, sizes in bytes,
/// packets.
///
/// Number, smallest, largest, mean and standard deviation are exact. So are quantiles while there
/// are at most 4,096 values; from then on they are rounded up to three digits, by less than
/// 0.1 %, in memory that hardly grows any more; or they are those of a random sample.
///
/// One without values takes a word of memory: most connections of a trace can be attempts to
/// connect, and each has 26 distributions.
#[derive(Debug, Clone, Default)]
pub struct Distribution(Option<Box<Filled>>);

/// One with a value at least.
#[derive(Debug, Clone)]
struct Filled {
    values: Values,
    /// Of them, those that quantiles do not rest on: a sample has others in their place.
    unsampled: u64,
    moments: Moments,
}

#[derive(Debug, Clone)]
enum Values {
    /// In order once they are settled.
    All(Exact),
    Rounded(Rounded),
}

const MOST_EXACT: usize = 4096;

impl Distribution {
    /// Adds a value; a negative one counts as 0.
    #[inline]
    pub fn record(&mut self, value: i64) {
        let value = value.max(0).unsigned_abs();
        match &mut self.0 {
            Some(filled) => filled.record(value),
            None => self.begin(value),
        }
    }

    #[cold]
    #[inline(never)]
    fn begin(&mut self, first: u64) {
        let mut filled = Box::new(Filled {
            values: Values::All(Exact::default()),
            unsampled: 0,
            moments: Moments::beginning_with(first),
        });
        filled.record(first);
        self.0 = Some(filled);
    }

    /// Of so many values that only a sample is known of; each stands for as many.
    pub fn sampled(moments: Moments, sample: impl ExactSizeIterator<Item = i64>) -> Self {
        let size = sample.len() as u64;
        // The least and the most are known, and are not left to chance.
        let others = moments.count.saturating_sub(2);
        let (each, more) = (others / size.max(1), others % size.max(1));
        let mut filled = Filled {
            values: Values::Rounded(Rounded::default()),
            unsampled: moments.count.saturating_sub(size),
            moments,
        };
        for (place, value) in (0..).zip(sample) {
            let value = value.max(0).unsigned_abs();
            let value = value.clamp(moments.smallest, moments.largest);
            filled.keep(value, each + u64::from(place < more));
        }
        filled.keep(moments.smallest, 1);
        filled.keep(moments.largest, 1);
        Self(Some(Box::new(filled)))
    }

    /// What is exact, if there are values.
    pub fn moments(&self) -> Option<Moments> {
        Some(self.0.as_ref()?.moments)
    }

    /// Adds so much to each value; what were negative then counts as 0.
    pub fn shift(&mut self, by: i64) {
        if by != 0
            && let Some(filled) = &mut self.0
        {
            filled.shift(by);
        }
    }

    /// How many values quantiles rest on, if that is a random sample of them.
    #[must_use]
    pub fn sample(&self) -> Option<u64> {
        let filled = self.0.as_ref()?;
        (filled.unsampled > 0).then(|| filled.moments.count - filled.unsampled)
    }

    /// Adds all values of another.
    pub fn add(&mut self, other: &Self) {
        match (&mut self.0, &other.0) {
            (_, None) => {}
            (Some(own), Some(other)) => own.add(other),
            (none, other) => none.clone_from(other),
        }
    }

    /// Puts the values in order, which reading them needs.
    pub fn settle(&mut self) {
        if let Some(Filled {
            values: Values::All(all),
            ..
        }) = self.0.as_deref_mut()
        {
            all.sort();
        }
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.as_ref().map_or(0, |filled| filled.moments.count)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether quantiles are exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        let all = |filled: &Filled| matches!(filled.values, Values::All(_));
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

    /// The standard deviation of a sample; none of a single value.
    #[must_use]
    pub fn sd(&self) -> Option<f64> {
        let moments = self.moments()?;
        let count = moments.count as f64;
        let spread = moments.sum_of_squares - moments.sum * moments.sum / count;
        (moments.count > 1).then(|| (spread.max(0.0) / (count - 1.0)).sqrt())
    }

    /// The smallest value that at least a share `q` of all values does not exceed (nearest rank,
    /// never interpolated). `q` is limited to 0 to 1.
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
            Values::Rounded(rounded) => {
                let value = rounded.of_rank(rank).unwrap_or(largest);
                Some(value.clamp(smallest, largest))
            }
        }
    }

    /// Each value in order, with how often it came.
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
            Values::Rounded(rounded) => {
                let within =
                    |value: u64| value.clamp(filled.moments.smallest, filled.moments.largest);
                let steps = rounded.iter();
                steps.map(|(value, times)| (within(value), times)).collect()
            }
        }
    }

    /// The cumulative distribution: values in order, each with the share of all that do not
    /// exceed it. At most 1,000: the tail exact, the body thinned so far that no figure shows it.
    #[must_use]
    pub fn curve(&self) -> Vec<(u64, f64)> {
        let count = self.len() as f64;
        let steps = thinned(self.steps()).into_iter();
        steps
            .map(|Step { value, rank }| (value, rank as f64 / count))
            .collect()
    }

    /// The complementary cumulative distribution, of the values of [`curve`](Self::curve): each
    /// with the share of all that exceed it, which ends with 0.
    #[must_use]
    pub fn complement(&self) -> Vec<(u64, f64)> {
        let count = self.len();
        let steps = thinned(self.steps()).into_iter();
        steps
            .map(|Step { value, rank }| (value, count.saturating_sub(rank) as f64 / count as f64))
            .collect()
    }
}

impl Filled {
    #[inline]
    fn record(&mut self, value: u64) {
        self.moments.record(value);
        self.keep(value, 1);
    }

    fn shift(&mut self, by: i64) {
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
            Values::Rounded(rounded) => {
                let mut higher = Rounded::default();
                for (value, times) in rounded.iter() {
                    higher.add(shifted(value), times);
                }
                *rounded = higher;
            }
        }
    }

    #[inline]
    fn keep(&mut self, value: u64, times: u64) {
        match &mut self.values {
            Values::All(all) if all.len() as u64 + times <= MOST_EXACT as u64 => {
                (0..times).for_each(|_| all.push(value));
            }
            Values::All(_) => {
                self.round();
                self.keep(value, times);
            }
            Values::Rounded(rounded) => rounded.add(value, times),
        }
    }

    #[cold]
    fn round(&mut self) {
        if let Values::All(all) = &self.values {
            let mut rounded = Rounded::default();
            for value in all.iter() {
                rounded.add(value, 1);
            }
            self.values = Values::Rounded(rounded);
        }
    }

    fn add(&mut self, other: &Self) {
        self.unsampled += other.unsampled;
        self.moments.add(&other.moments);
        match &other.values {
            Values::All(all) => all.iter().for_each(|value| self.keep(value, 1)),
            Values::Rounded(rounded) => {
                self.round();
                for (value, times) in rounded.iter() {
                    self.keep(value, times);
                }
            }
        }
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

    fn of(values: impl IntoIterator<Item = i64>) -> Distribution {
        let mut distribution = Distribution::default();
        for value in values {
            distribution.record(value);
        }
        distribution.settle();
        distribution
    }

    #[test]
    fn quantiles_of_few_values_are_nearest_rank() {
        let all = of((1..=100).rev());
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
    fn quantiles_of_many_values_are_right_to_three_digits() {
        let all = of((1..=100_000).map(|value| value * 10_007));
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
    fn a_curve_of_few_values_has_each() {
        let few = of([10, 30, 10, 20]);
        assert_eq!(few.curve(), [(10, 0.5), (20, 0.75), (30, 1.0)]);
        assert_eq!(few.complement(), [(10, 0.5), (20, 0.25), (30, 0.0)]);
    }

    #[test]
    fn the_tail_of_many_values_is_told_to_the_last() {
        const COUNT: i64 = 1_000_000;
        let all = of((1..=COUNT).map(|place| 10 * COUNT / place));
        let tail = all.complement();
        assert!(tail.len() <= 1000 && tail.is_sorted_by(|one, next| one.1 > next.1));
        let rarest = tail.len() - 10..tail.len();
        let shares = tail[rarest].iter().map(|(_, share)| (share * 1e6).round());
        assert!(shares.eq((0..10).rev().map(f64::from)));
        // On the way there, no share is left out that a log axis would show.
        for pair in tail.windows(2).filter(|pair| pair[1].1 > 1e-5) {
            assert!(pair[1].1 / pair[0].1 > 0.9, "{pair:?}");
        }
    }

    #[test]
    fn distributions_add_up_as_if_they_had_been_one() {
        for many in [30, 3000, 9000] {
            let (mut low, high) = (of(0..many), of(many..2 * many));
            low.add(&high);
            low.settle();
            let all = of(0..2 * many);
            assert_eq!(low.steps(), all.steps());
            assert!((low.mean().unwrap() - all.mean().unwrap()).abs() < 1e-6);
            assert!((low.sd().unwrap() - all.sd().unwrap()).abs() < 1e-6);
        }
    }

    #[test]
    fn no_values_have_no_mean_and_no_quantile() {
        let none = of([]);
        assert_eq!(
            (none.quantile(0.5), none.mean(), none.sd()),
            (None, None, None)
        );
        assert!(none.steps().is_empty());
    }

    #[test]
    fn a_small_spread_of_large_values_is_not_lost() {
        let day_ns = 86_400_000_000_000;
        let all = of([day_ns, day_ns + 1000, day_ns + 2000]);
        assert!((all.sd().unwrap() - 1000.0).abs() < 1e-6);
    }
}
