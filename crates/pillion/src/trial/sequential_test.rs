//! The test of a trial: the chance of a difference by the draw alone, and when to look at it.

use pillion_bpf::Arm;
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

// The randomisation test (R. A. Fisher, The Design of Experiments, 1935; E. J. G. Pitman, 1937):
// if bundling made no difference to anybody, each unit would have fared the same in the other arm,
// and only the draw decided who is where. So the draw is made again, many times, and it is counted
// how often the arms differ as much as they did. This asks nothing of how latencies are
// distributed, nor that units are alike, nor that they do not change with time: only that the draw
// was at random.

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

// When to look at a trial, and what a look decides.
//
// Who looks again and again, and ends a trial as soon as the arms differ, finds a difference where
// there is none. So looks are planned, one whenever twice as many segments were observed, and
// the error rate is spent on them: look k may be wrong with a chance of at most `ERROR_RATE` /
// (k (k + 1)), half of that for either side, and all looks together, however many there are, with
// `ERROR_RATE` (by Boole's inequality; the spending of K. K. G. Lan and D. L. DeMets, Biometrika
// 1983, in the simplest form, which needs no last look).

/// How likely a trial at most finds a difference where there is none.
pub const ERROR_RATE: f64 = 0.05;

/// Segments before the first look.
pub(crate) const FIRST: u64 = 4_000;

/// One look at a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Segments that were observed by then.
    pub segments: u64,
    /// Units that were compared, in both arms together.
    pub units: u64,
    /// How likely the draw alone would have the bundled arm as good as it was, or better.
    pub chance_of_better: f64,
    /// How likely the draw alone would have the bundled arm as bad as it was, or worse.
    pub chance_of_worse: f64,
    /// How likely the draw alone would have as many connections of the bundled arm cut short, or more.
    pub chance_of_more_cut: f64,
    /// What the first may not exceed for a verdict, and each of the others not by half: there are two
    /// ways to harm.
    pub threshold: f64,
}

/// What a trial says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Not clear yet.
    Undecided,
    /// With bundles, data wait less.
    Helps,
    /// With bundles, data wait longer, or connections are cut short.
    Harms,
}

impl Look {
    /// What the look decides.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.cuts() || self.chance_of_worse <= self.threshold / 2.0 {
            Verdict::Harms
        } else if self.chance_of_better <= self.threshold {
            Verdict::Helps
        } else {
            Verdict::Undecided
        }
    }

    /// Whether it is clear that bundles have connections cut short.
    #[must_use]
    pub fn cuts(&self) -> bool {
        self.chance_of_more_cut <= self.threshold / 2.0
    }
}

/// How likely a look errs at most on either side, the first being 1.
pub(crate) fn threshold(look: usize) -> f64 {
    let look = look as f64;
    ERROR_RATE / (look * (look + 1.0)) / 2.0
}

/// Segments that are to be observed before a look, the first being 1, where the last one was at
/// `last`.
pub(crate) fn due_at(last: Option<u64>) -> u64 {
    last.map_or(FIRST, |last| last.saturating_mul(2))
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
        let threshold = crate::trial::sequential_test::threshold(100);
        let chances = chances(&values, threshold, &mut generator(1));
        assert!(chances.of_lower <= threshold, "{chances:?}");
    }

    #[test]
    fn where_all_are_alike_every_draw_is() {
        let values = arms(&[0.0; 5], &[0.0; 5]);
        let chances = chances(&values, 0.01, &mut generator(1));
        assert_eq!((chances.of_lower, chances.of_higher), (1.0, 1.0));
    }

    #[test]
    fn all_looks_together_err_no_more_than_the_rate() {
        let all: f64 = (1..1_000_000).map(threshold).sum();
        assert!(2.0 * all <= ERROR_RATE && 2.0 * all > 0.99 * ERROR_RATE);
    }

    #[test]
    fn looks_grow_apart() {
        let first = due_at(None);
        assert_eq!((first, due_at(Some(first))), (4_000, 8_000));
    }
}
