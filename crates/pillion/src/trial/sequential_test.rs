//! Statistical test of a trial, and the schedule of its interim analyses.

use pillion_bpf::Arm;
use pillion_stats::measure::normal_deviations;
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

// Randomisation test (R. A. Fisher, The Design of Experiments, 1935; E. J. G. Pitman, 1937). If
// bundling made no difference, each unit would have had the same value in the other arm. Therefore
// the assignment is permuted many times, and the test counts how often the arms differ at least as
// much as observed. The test assumes only that the assignment was random. It does not assume a
// distribution of latencies, similar units, or constant conditions.

/// Returns the number of permutations. It is large enough for p-values of half the threshold, and
/// limited to four million for the sake of run time.
fn permutation_count(threshold: f64) -> u32 {
    (4.0 / threshold).ceil().clamp(20_000.0, 4_000_000.0) as u32
}

/// Probabilities of a difference at least as large as observed, from random assignment only.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PValues {
    /// Probability of values in the bundled arm that are at most as high as observed.
    pub(crate) lower: f64,
    /// Probability of values in the bundled arm that are at least as high as observed.
    pub(crate) higher: f64,
}

/// Compares the arms with a statistic of two parts (P. A. Lachenbruch, 1976), because many paths
/// never have late segments. The first part is the number of bundled units with a value above 0.
/// The second part is the rank sum of these units (F. Wilcoxon, 1945), which a single outlier
/// cannot dominate. Permutations stop when no p-value can fall to `threshold` any more.
pub(crate) fn randomisation_test(
    values: &[(Arm, f64)],
    threshold: f64,
    rng: &mut impl Rng,
) -> PValues {
    let ranks = doubled_ranks(values);
    let [bundled, plain] = [Arm::Bundled, Arm::Plain].map(|of| {
        let of_arm = values.iter().zip(&ranks).filter(|((arm, _), _)| *arm == of);
        of_arm.map(|(_, rank)| *rank).collect::<Vec<_>>()
    });
    // The smaller arm takes less time. The statistics of the two arms differ only in their sign.
    let is_swapped = plain.len() < bundled.len();
    let smaller = if is_swapped { plain } else { bundled };
    let scale = Scale::of(&ranks, smaller.len());
    let observed = scale.statistic(smaller.iter().copied());
    let (mut lower, mut higher, mut permutations) = (1, 1, 1);
    let permutation_count = permutation_count(threshold);
    let stop_count = threshold * f64::from(permutation_count + 1);
    let mut order = ranks;
    while permutations <= permutation_count && f64::from(lower.min(higher)) <= stop_count {
        for index in 0..smaller.len() {
            let other = rng.random_range(index..order.len());
            order.swap(index, other);
        }
        let permuted = scale.statistic(order[..smaller.len()].iter().copied());
        // Values that differ only by rounding count as equal.
        lower += u32::from(permuted <= observed + 1e-9);
        higher += u32::from(permuted >= observed - 1e-9);
        permutations += 1;
    }
    let share = |count| f64::from(count) / f64::from(permutations);
    if is_swapped {
        (lower, higher) = (higher, lower);
    }
    PValues {
        lower: share(lower),
        higher: share(higher),
    }
}

/// Scale of both parts of the statistic of one arm.
struct Scale {
    /// Expected number of its values above 0.
    expected: f64,
    spread: f64,
    /// Number of values above 0 in both arms.
    above: f64,
}

impl Scale {
    fn of(ranks: &[u64], units: usize) -> Self {
        let above = ranks.iter().filter(|rank| **rank > 0).count() as f64;
        let (all, units) = (ranks.len() as f64, units as f64);
        let variance = units * (all - units) * above * (all - above) / (all * all * (all - 1.0));
        Self {
            expected: units * above / all,
            spread: variance.sqrt(),
            above,
        }
    }

    /// Returns the standardised statistic of an arm; random assignments average 0.
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

/// Returns twice the rank of each value above 0, and 0 for the others. Equal values share their
/// mean rank, so twice the rank is an integer.
fn doubled_ranks(values: &[(Arm, f64)]) -> Vec<u64> {
    let mut order: Vec<_> = (0..values.len())
        .filter(|unit| values[*unit].1 > 0.0)
        .collect();
    order.sort_by(|a, b| values[*a].1.total_cmp(&values[*b].1));
    let mut ranks = vec![0; values.len()];
    let mut below = 0;
    for ties in order.chunk_by(|a, b| values[*a].1.total_cmp(&values[*b].1).is_eq()) {
        let rank = (2 * below + ties.len() + 1) as u64;
        ties.iter().for_each(|unit| ranks[*unit] = rank);
        below += ties.len();
    }
    ranks
}

// Schedule of interim analyses.
//
// Repeated tests until the arms differ would find a difference in most trials without one.
// Therefore analyses are planned, one for each doubling of the number of segments, and share the
// error rate. Analysis k may be wrong with a probability of at most `ERROR_RATE` / (k (k + 1)),
// half of it for either side. All analyses together stay below `ERROR_RATE` by Boole's inequality,
// however many there are. This is the alpha spending of K. K. G. Lan and D. L. DeMets (Biometrika
// 1983) in its simplest form, which needs no final analysis.

/// Maximum probability of a verdict in a trial without a difference.
pub const ERROR_RATE: f64 = 0.05;

/// Segments before the first interim analysis.
pub(crate) const FIRST_ANALYSIS_SEGMENTS: u64 = 4_000;

/// Result of one interim analysis.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct InterimAnalysis {
    /// Segments observed until then.
    pub segments: u64,
    /// Units compared, in both arms together.
    pub units: u64,
    /// Probability that random assignment makes the bundled arm at least as good as observed.
    pub chance_of_better: f64,
    /// Probability that random assignment makes the bundled arm at least as bad as observed.
    pub chance_of_worse: f64,
    /// Probability that random assignment makes at least as many connections of the bundled arm end
    /// with an error.
    pub chance_of_more_cut: f64,
    /// Significance level of benefit. Harm can appear in two ways, so each of the other two
    /// probabilities has half of it.
    pub threshold: f64,
}

/// Verdict of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// No significant difference yet.
    Undecided,
    /// Segments wait less with bundles.
    Helps,
    /// Segments wait longer with bundles, or more connections end with an error.
    Harms,
}

impl InterimAnalysis {
    /// Returns the verdict of this analysis.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.is_cut_clear() || self.chance_of_worse <= self.threshold / 2.0 {
            Verdict::Harms
        } else if self.chance_of_better <= self.threshold {
            Verdict::Helps
        } else {
            Verdict::Undecided
        }
    }

    /// Returns true if bundles significantly increase the number of connections that end with an
    /// error.
    #[must_use]
    pub fn is_cut_clear(&self) -> bool {
        self.chance_of_more_cut <= self.threshold / 2.0
    }
}

/// Returns the error rate on either side for the analysis with this ordinal, from 1.
pub(crate) fn threshold(ordinal: usize) -> f64 {
    let ordinal = ordinal as f64;
    ERROR_RATE / (ordinal * (ordinal + 1.0)) / 2.0
}

/// Returns the factor that widens 95 % intervals at the analysis with this ordinal. All analyses
/// together then miss the true difference with a probability of at most [`ERROR_RATE`] (repeated
/// confidence intervals: C. Jennison, B. W. Turnbull, JRSS B 51, 1989).
pub(crate) fn interval_factor(ordinal: usize) -> f64 {
    normal_deviations(threshold(ordinal)) / normal_deviations(0.025)
}

/// Returns the number of segments at which the next analysis is due, after one at `last`.
pub(crate) fn next_analysis_at(last: Option<u64>) -> u64 {
    last.map_or(FIRST_ANALYSIS_SEGMENTS, |last| last.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::estimate::seeded_rng;

    fn arms(bundled: &[f64], plain: &[f64]) -> Vec<(Arm, f64)> {
        let bundled = bundled.iter().map(|value| (Arm::Bundled, *value));
        let plain = plain.iter().map(|value| (Arm::Plain, *value));
        bundled.chain(plain).collect()
    }

    #[test]
    fn equal_values_share_ranks() {
        let values = arms(&[3.0, 1.0], &[3.0, 0.0]);
        assert_eq!(doubled_ranks(&values), [5, 2, 5, 0]);
    }

    #[test]
    fn p_values_match_full_enumeration() {
        // One of the 20 ways to choose 3 of 6 has the three lowest values.
        let values = arms(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]);
        let p_values = randomisation_test(&values, 0.06, &mut seeded_rng(1));
        assert!((p_values.lower - 0.05).abs() < 0.006, "{p_values:?}");
        assert!((p_values.higher - 1.0).abs() < 1e-9);
    }

    #[test]
    fn arm_without_lateness_lowers_p_value() {
        let values = arms(&[0.0; 6], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let p_values = randomisation_test(&values, 0.05, &mut seeded_rng(1));
        // 7 of 924 permutations are as good: those without any value above 0, and those with the
        // lowest one.
        assert!((p_values.lower - 7.0 / 924.0).abs() < 0.003, "{p_values:?}");
    }

    #[test]
    fn hundredth_analysis_can_still_decide() {
        let late: Vec<_> = (1..=40).map(f64::from).collect();
        let values = arms(&late[..20], &late[20..]);
        let threshold = crate::trial::sequential_test::threshold(100);
        let p_values = randomisation_test(&values, threshold, &mut seeded_rng(1));
        assert!(p_values.lower <= threshold, "{p_values:?}");
    }

    #[test]
    fn identical_values_give_p_value_one() {
        let values = arms(&[0.0; 5], &[0.0; 5]);
        let p_values = randomisation_test(&values, 0.01, &mut seeded_rng(1));
        assert_eq!((p_values.lower, p_values.higher), (1.0, 1.0));
    }

    #[test]
    fn error_rates_of_all_analyses_sum_to_limit() {
        let all: f64 = (1..1_000_000).map(threshold).sum();
        assert!(2.0 * all <= ERROR_RATE && 2.0 * all > 0.99 * ERROR_RATE);
    }

    #[test]
    fn interval_factors_match_normal_quantiles() {
        for (ordinal, quantile) in [(1, 2.2414), (7, 3.3223)] {
            let factor = interval_factor(ordinal);
            assert!((factor * 1.96 - quantile).abs() < 0.01, "{factor}");
        }
    }

    #[test]
    fn analyses_follow_doublings_of_segments() {
        let first = next_analysis_at(None);
        assert_eq!((first, next_analysis_at(Some(first))), (4_000, 8_000));
    }
}
