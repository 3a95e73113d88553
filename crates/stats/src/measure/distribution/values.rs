//! Values of a distribution: all of them, rounded, or as moments.

/// What is known of values exactly, however many of them are kept.
#[derive(Debug, Clone, Copy)]
pub struct Moments {
    /// The number of values.
    pub count: u64,
    /// The smallest value.
    pub smallest: u64,
    /// The largest value.
    pub largest: u64,
    /// The first value. Sums are of differences from it, so that little is lost of large values
    /// that differ little.
    pub first: u64,
    /// The sum of all differences from the first value.
    pub sum: f64,
    /// The sum of their squares.
    pub sum_of_squares: f64,
}

impl Moments {
    /// Those of no value yet, of which this one comes first.
    pub(super) fn beginning_with(first: u64) -> Self {
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

    /// Adds the values of another.
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

    /// The moments of so many values that are distributed alike.
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

/// All values, in half of the memory while each is below 2³²: times up to four seconds, and sizes.
#[derive(Debug, Clone)]
pub(super) enum Exact {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Exact {
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

    pub(super) fn get(&self, place: usize) -> Option<u64> {
        match self {
            Self::Narrow(values) => values.get(place).copied().map(u64::from),
            Self::Wide(values) => values.get(place).copied(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.len()).map_while(|place| self.get(place))
    }
}

impl Default for Exact {
    fn default() -> Self {
        Self::Narrow(Vec::new())
    }
}

impl FromIterator<u64> for Exact {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        let mut all = Self::default();
        values.into_iter().for_each(|value| all.push(value));
        all
    }
}

/// How often values came, in memory that does not grow with their number.
///
/// Values below 2,048 are kept as they are, larger ones in steps of which a power of two has
/// 1,024: rounded up to the end of a step they are right to three digits, as in a histogram of
/// high dynamic range (HdrHistogram). Adding a value takes a few instructions: a trace gives
/// several for each packet.
#[derive(Debug, Clone, Default)]
pub(super) struct Rounded {
    /// Of each step; up to a whole power of two.
    times: Vec<u32>,
}

/// Steps in a power of two.
const STEPS: usize = 1 << STEPS_LOG2;
const STEPS_LOG2: u32 = 10;

impl Rounded {
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

    /// The largest values of the steps that have any, in order, each with how often they came.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let steps = self.times.iter().enumerate();
        steps
            .filter(|&(_, &times)| times > 0)
            .map(|(step, &times)| (largest(step), times.into()))
    }

    /// The value of which so many are not larger, itself counted; none if there are fewer.
    pub(super) fn of_rank(&self, rank: u64) -> Option<u64> {
        let mut seen = 0;
        let mut steps = self.iter();
        let found = steps.find(|&(_, times)| {
            seen += times;
            seen >= rank
        });
        found.map(|(value, _)| value)
    }
}

/// The step of a value: by how many bits it is too long, and the bits that are left.
#[inline]
fn step(value: u64) -> usize {
    let longest_kept = (1 << (STEPS_LOG2 + 1)) - 1;
    let too_long = u64::BITS - 1 - STEPS_LOG2 - (value | longest_kept).leading_zeros();
    (too_long as usize) * STEPS + (value >> too_long) as usize
}

fn largest(step: usize) -> u64 {
    let too_long = (step / STEPS).saturating_sub(1);
    let kept = (step - too_long * STEPS) as u64;
    // The last step of all ends with the largest number.
    ((kept + 1) << too_long).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_as_they_are_whatever_their_size() {
        let largest_narrow = u64::from(u32::MAX);
        let given = [7, largest_narrow, 3, largest_narrow + 1, 5, u64::MAX, 0];
        let mut all: Exact = given[..3].iter().copied().collect();
        assert!(matches!(all, Exact::Narrow(_)));
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
    fn a_value_is_rounded_up_by_less_than_a_thousandth() {
        let powers = (0..u64::BITS).map(|bit| 1 << bit);
        for value in powers.flat_map(|power: u64| [power - 1, power, power + power / 3]) {
            let rounded = largest(step(value));
            assert!(rounded >= value, "{value} to {rounded}");
            assert!(rounded - value <= value / 1024, "{value} to {rounded}");
            assert!(value >= 2048 || rounded == value);
        }
        assert_eq!(largest(step(u64::MAX)), u64::MAX);
    }

    #[test]
    fn steps_follow_each_other() {
        for at in 0..50 * STEPS {
            assert_eq!(step(largest(at)), at);
            assert_eq!(step(largest(at) + 1), at + 1);
        }
    }

    #[test]
    fn a_rank_finds_the_value_that_has_it() {
        let mut rounded = Rounded::default();
        for (value, times) in [(7, 2), (1_000_000, 3), (3, 1)] {
            rounded.add(value, times);
        }
        let found = [1, 2, 3, 4, 6, 7].map(|rank| rounded.of_rank(rank));
        let million = largest(step(1_000_000));
        let expected = [3, 7, 7, million, million].map(Some);
        assert_eq!(found[..5], expected);
        assert_eq!(found[5], None);
        assert!(rounded.iter().eq([(3, 1), (7, 2), (million, 3)]));
    }
}
