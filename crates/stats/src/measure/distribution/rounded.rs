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
