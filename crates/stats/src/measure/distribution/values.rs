//! Storage of a distribution's values: exact, as a histogram, or as moments.

/// Exact statistics, independent of the number of stored values.
#[derive(Debug, Clone, Copy)]
pub struct Moments {
    /// The number of values.
    pub count: u64,
    /// The smallest value.
    pub smallest: u64,
    /// The largest value.
    pub largest: u64,
    /// The first value. Sums use differences from it, which preserves the precision of large,
    /// similar values.
    pub first: u64,
    /// Sum of the differences from the first value.
    pub sum: f64,
    /// Sum of the squares of these differences.
    pub sum_of_squares: f64,
}

impl Moments {
    /// Empty moments with `first` as the reference value.
    pub(super) fn starting_at(first: u64) -> Self {
        Self {
            count: 0,
            smallest: first,
            largest: first,
            first,
            sum: 0.0,
            sum_of_squares: 0.0,
        }
    }

    #[inline]
    pub(super) fn record(&mut self, value: u64) {
        self.count += 1;
        self.smallest = self.smallest.min(value);
        self.largest = self.largest.max(value);
        let difference = value.wrapping_sub(self.first).cast_signed() as f64;
        self.sum += difference;
        self.sum_of_squares += difference * difference;
    }

    /// Adds the moments of another distribution.
    pub(super) fn add(&mut self, other: &Self) {
        let shift = other.first as f64 - self.first as f64;
        let count = other.count as f64;
        self.sum_of_squares +=
            other.sum_of_squares + 2.0 * shift * other.sum + count * shift * shift;
        self.sum += other.sum + count * shift;
        self.count += other.count;
        self.smallest = self.smallest.min(other.smallest);
        self.largest = self.largest.max(other.largest);
    }

    /// Scales the moments to `count` values of the same distribution.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        let factor = count as f64 / self.count as f64;
        Self {
            count,
            sum: self.sum * factor,
            sum_of_squares: self.sum_of_squares * factor,
            ..self
        }
    }
}

/// All values. 32 bits each while all are below 2³², which covers sizes and times up to four
/// seconds.
#[derive(Debug, Clone)]
pub(super) enum ExactValues {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl ExactValues {
    #[inline]
    pub(super) fn push(&mut self, value: u64) {
        match (&mut *self, u32::try_from(value)) {
            (Self::Narrow(values), Ok(narrow)) => values.push(narrow),
            (Self::Narrow(_), Err(_)) => self.widen(value),
            (Self::Wide(values), _) => values.push(value),
        }
    }

    #[cold]
    fn widen(&mut self, value: u64) {
        *self = Self::Wide(self.iter().chain([value]).collect());
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Narrow(values) => values.len(),
            Self::Wide(values) => values.len(),
        }
    }

    pub(super) fn sort(&mut self) {
        match self {
            Self::Narrow(values) => values.sort_unstable(),
            Self::Wide(values) => values.sort_unstable(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<u64> {
        match self {
            Self::Narrow(values) => values.get(index).copied().map(u64::from),
            Self::Wide(values) => values.get(index).copied(),
        }
    }

    /// Passes each value, faster than [`iter`](Self::iter).
    pub(super) fn for_each(&self, report: impl FnMut(u64)) {
        match self {
            Self::Narrow(values) => values.iter().copied().map(u64::from).for_each(report),
            Self::Wide(values) => values.iter().copied().for_each(report),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.len()).map_while(|index| self.get(index))
    }
}

impl Default for ExactValues {
    fn default() -> Self {
        Self::Narrow(Vec::new())
    }
}

impl FromIterator<u64> for ExactValues {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        let mut all = Self::default();
        values.into_iter().for_each(|value| all.push(value));
        all
    }
}

/// Histogram of values, in memory that does not grow with their number.
///
/// Values below 2,048 are exact. Each larger power of two has 1,024 steps, and a value is rounded
/// up to the end of its step. The result is right to three digits, as in HdrHistogram. Adding a
/// value takes a few instructions, because a trace yields several values per packet.
#[derive(Debug, Clone, Default)]
pub(super) struct Histogram {
    /// Count per step, up to a whole power of two.
    times: Vec<u32>,
}

/// Steps per power of two.
const STEPS: usize = 1 << STEPS_LOG2;
const STEPS_LOG2: u32 = 10;

impl Histogram {
    #[inline]
    pub(super) fn add(&mut self, value: u64, times: u64) {
        let step = step(value);
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        match self.times.get_mut(step) {
            Some(before) => *before = before.saturating_add(times),
            None => self.add_above(step, times),
        }
    }

    #[cold]
    fn add_above(&mut self, step: usize, times: u32) {
        self.times.resize((step / STEPS + 1) * STEPS, 0);
        self.times[step] = times;
    }

    /// The maximum of each non-empty step in ascending order, with its count.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let steps = self.times.iter().enumerate();
        steps
            .filter(|&(_, &times)| times > 0)
            .map(|(step, &times)| (step_max(step), times.into()))
    }

    /// The value at a rank, 1 for the smallest; `None` beyond the last.
    pub(super) fn value_at_rank(&self, rank: u64) -> Option<u64> {
        let mut seen = 0;
        let mut steps = self.iter();
        let found = steps.find(|&(_, times)| {
            seen += times;
            seen >= rank
        });
        found.map(|(value, _)| value)
    }
}

/// The step of a value: the number of excess bits, then the remaining bits.
#[inline]
fn step(value: u64) -> usize {
    let max_stored = (1 << (STEPS_LOG2 + 1)) - 1;
    let too_long = u64::BITS - 1 - STEPS_LOG2 - (value | max_stored).leading_zeros();
    (too_long as usize) * STEPS + (value >> too_long) as usize
}

fn step_max(step: usize) -> u64 {
    let too_long = (step / STEPS).saturating_sub(1);
    let stored = (step - too_long * STEPS) as u64;
    // The last step ends at `u64::MAX`.
    ((stored + 1) << too_long).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_values_store_values_of_any_size() {
        let largest_narrow = u64::from(u32::MAX);
        let given = [7, largest_narrow, 3, largest_narrow + 1, 5, u64::MAX, 0];
        let mut all: ExactValues = given[..3].iter().copied().collect();
        assert!(matches!(all, ExactValues::Narrow(_)));
        given[3..].iter().for_each(|&value| all.push(value));
        assert!(all.iter().eq(given));
        all.sort();
        assert_eq!(
            (all.len(), all.get(6), all.get(7)),
            (7, Some(u64::MAX), None)
        );
        assert!(all.iter().is_sorted());
    }

    #[test]
    fn histogram_rounds_up_by_less_than_a_thousandth() {
        let powers = (0..u64::BITS).map(|bit| 1 << bit);
        for value in powers.flat_map(|power: u64| [power - 1, power, power + power / 3]) {
            let rounded = step_max(step(value));
            assert!(rounded >= value, "{value} to {rounded}");
            assert!(rounded - value <= value / 1024, "{value} to {rounded}");
            assert!(value >= 2048 || rounded == value);
        }
        assert_eq!(step_max(step(u64::MAX)), u64::MAX);
    }

    #[test]
    fn histogram_steps_are_contiguous() {
        for at in 0..50 * STEPS {
            assert_eq!(step(step_max(at)), at);
            assert_eq!(step(step_max(at) + 1), at + 1);
        }
    }

    #[test]
    fn histogram_finds_value_at_rank() {
        let mut histogram = Histogram::default();
        for (value, times) in [(7, 2), (1_000_000, 3), (3, 1)] {
            histogram.add(value, times);
        }
        let found = [1, 2, 3, 4, 6, 7].map(|rank| histogram.value_at_rank(rank));
        let million = step_max(step(1_000_000));
        let expected = [3, 7, 7, million, million].map(Some);
        assert_eq!(found[..5], expected);
        assert_eq!(found[5], None);
        assert!(histogram.iter().eq([(3, 1), (7, 2), (million, 3)]));
    }
}
