//! The randomisation test (R. A. Fisher, The Design of Experiments, 1935; E. J. G. Pitman, 1937):
//! if bundling made no difference to anybody, each unit would have fared the same in the other arm,
//! and only the draw decided who is where. So the draw is made again, many times, and it is counted
//! how often the arms differ as much as they did. This asks nothing of how latencies are
//! distributed, nor that units are alike, nor that they do not change with time: only that the draw
//! was at random.

use pillion_bpf::Arm;
use rand::{Rng, RngExt};

/// How often the draw is made again: so often that a chance can come down to half the threshold,
/// within what can be waited for.
fn redraws(threshold: f64) -> u32 {
    (4.0 / threshold).ceil().clamp(20_000.0, 1_000_000.0) as u32
}

/// Probabilities with which the draw alone makes such a difference as was seen, or a greater one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Chances {
    /// That the values of the bundled arm are so low.
    pub(crate) of_lower: f64,
    /// That the values of the bundled arm are so high.
    pub(crate) of_higher: f64,
}

/// Compares the arms by a statistic of two parts (P. A. Lachenbruch, 1976), for on many paths nothing
/// is ever late: how many units of the bundled arm have a value above 0, and how these rank among
/// all such units (F. Wilcoxon, 1945), so that a single one cannot. It is not counted on once
/// neither chance can come down to the `threshold`.
pub(crate) fn chances(values: &[(Arm, f64)], threshold: f64, random: &mut impl Rng) -> Chances {
    let ranks = doubled_ranks(values);
    let bundled = values.iter().zip(&ranks);
    let bundled = bundled.filter(|((arm, _), _)| *arm == Arm::Bundled);
    let bundled: Vec<_> = bundled.map(|(_, rank)| *rank).collect();
    let scale = Scale::of(&ranks, bundled.len());
    let seen = scale.statistic(bundled.iter().copied());
    let (mut lower, mut higher, mut draws) = (1, 1, 1);
    let redraws = redraws(threshold);
    let enough = threshold * f64::from(redraws + 1);
    let mut order = ranks;
    while draws <= redraws && f64::from(lower.min(higher)) <= enough {
        for place in 0..bundled.len() {
            let other = random.random_range(place..order.len());
            order.swap(place, other);
        }
        let drawn = scale.statistic(order[..bundled.len()].iter().copied());
        // Equal but for rounding is equal.
        lower += u32::from(drawn <= seen + 1e-9);
        higher += u32::from(drawn >= seen - 1e-9);
        draws += 1;
    }
    let share = |count| f64::from(count) / f64::from(draws);
    Chances {
        of_lower: share(lower),
        of_higher: share(higher),
    }
}

/// What both parts of the statistic are measured by.
struct Scale {
    /// Values above 0 that the bundled arm is to be expected to have, and by how much it varies.
    expected: f64,
    spread: f64,
    /// Values above 0, of both arms.
    above: f64,
}

impl Scale {
    fn of(ranks: &[u64], bundled: usize) -> Self {
        let above = ranks.iter().filter(|rank| **rank > 0).count() as f64;
        let (all, bundled) = (ranks.len() as f64, bundled as f64);
        let variance =
            bundled * (all - bundled) * above * (all - above) / (all * all * (all - 1.0));
        Self {
            expected: bundled * above / all,
            spread: variance.sqrt(),
            above,
        }
    }

    /// How high the ranks of an arm are: 0 as a draw has it on average.
    fn statistic(&self, ranks: impl Iterator<Item = u64>) -> f64 {
        let ranks = ranks.filter(|rank| *rank > 0);
        let (count, sum) = ranks.fold((0, 0), |(count, sum), rank| (count + 1, sum + rank));
        let (count, sum) = (f64::from(count), sum as f64 / 2.0);
        let expected = count * (self.above + 1.0) / 2.0;
        let variance = count * (self.above - count) * (self.above + 1.0) / 12.0;
        let part = |difference: f64, spread: f64| match spread > 0.0 {
            true => difference / spread,
            false => 0.0,
        };
        part(count - self.expected, self.spread) + part(sum - expected, variance.sqrt())
    }
}

/// Twice the rank of each value above 0 among these, whole where equal ones share theirs; 0 for the
/// others.
fn doubled_ranks(values: &[(Arm, f64)]) -> Vec<u64> {
    let mut order: Vec<_> = (0..values.len())
        .filter(|unit| values[*unit].1 > 0.0)
        .collect();
    order.sort_by(|a, b| values[*a].1.total_cmp(&values[*b].1));
    let mut ranks = vec![0; values.len()];
    let mut below = 0;
    for alike in order.chunk_by(|a, b| values[*a].1.total_cmp(&values[*b].1).is_eq()) {
        let rank = (2 * below + alike.len() + 1) as u64;
        alike.iter().for_each(|unit| ranks[*unit] = rank);
        below += alike.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::estimate::generator;

    fn arms(bundled: &[f64], plain: &[f64]) -> Vec<(Arm, f64)> {
        let bundled = bundled.iter().map(|value| (Arm::Bundled, *value));
        let plain = plain.iter().map(|value| (Arm::Plain, *value));
        bundled.chain(plain).collect()
    }

    #[test]
    fn equal_values_share_their_ranks() {
        let values = arms(&[3.0, 1.0], &[3.0, 0.0]);
        assert_eq!(doubled_ranks(&values), [5, 2, 5, 0]);
    }

    #[test]
    fn chances_are_those_of_counting_all_draws() {
        // Of the 20 ways to draw 3 of 6, one has the three lowest.
        let values = arms(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]);
        let chances = chances(&values, 0.06, &mut generator(1));
        assert!((chances.of_lower - 0.05).abs() < 0.006, "{chances:?}");
        assert!((chances.of_higher - 1.0).abs() < 1e-9);
    }

    #[test]
    fn that_nothing_is_late_in_one_arm_counts() {
        let values = arms(&[0.0; 6], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let chances = chances(&values, 0.05, &mut generator(1));
        // As good are 7 of 924 draws: those with none, and with the lowest alone.
        assert!(
            (chances.of_lower - 7.0 / 924.0).abs() < 0.003,
            "{chances:?}"
        );
    }

    #[test]
    fn a_late_look_can_still_decide() {
        let late: Vec<_> = (1..=40).map(f64::from).collect();
        let values = arms(&late[..20], &late[20..]);
        let threshold = crate::trial::look::threshold(100);
        let chances = chances(&values, threshold, &mut generator(1));
        assert!(chances.of_lower <= threshold, "{chances:?}");
    }

    #[test]
    fn where_all_are_alike_every_draw_is() {
        let values = arms(&[0.0; 5], &[0.0; 5]);
        let chances = chances(&values, 0.01, &mut generator(1));
        assert_eq!((chances.of_lower, chances.of_higher), (1.0, 1.0));
    }
}
