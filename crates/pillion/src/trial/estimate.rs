use pillion_stats::measure::{Unit, bootstrap_interval, bootstrap_tail};
use pillion_stats::report::number;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::trial::sequential_test::interval_factor;
use crate::trial::{Formula, Summary};

/// Number of bootstrap resamples.
const RESAMPLES: usize = 400;

/// Number of resamples for small samples, whose interval reaches far into the tails.
const SMALL_SAMPLE_RESAMPLES: usize = 2_000;

/// Samples with fewer units than this are small.
const SMALL_SAMPLE: usize = 30;

/// Minimum number of units for an interval: five.
pub(crate) const MIN_UNITS: usize = 5;

/// A value and its interval of 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Value of the observations.
    pub value: f64,
    /// Ends of the interval; `None` with fewer than [`MIN_UNITS`] units, or if all are equal.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// Builds an estimate from the values of bootstrap resamples of this many units.
    pub(crate) fn new(value: f64, resampled: Vec<f64>, units: usize) -> Self {
        let interval = bootstrap_interval(resampled, bootstrap_tail(units));
        Self {
            value,
            interval: interval.filter(|(low, high)| low < high),
        }
    }
}

/// Formats a value with its interval, as in `12.3 (9.8 to 15.0)`.
pub fn estimate_text(estimate: Option<Estimate>, unit: Unit) -> String {
    let Some(Estimate { value, interval }) = estimate else {
        return number::MISSING.to_owned();
    };
    let text = |value| match unit {
        Unit::Share => number::percent(value),
        _ => number::millis(value),
    };
    match interval {
        Some((low, high)) => format!("{} ({} to {})", text(value), text(low), text(high)),
        None => text(value),
    }
}

/// Returns the number of resamples for this number of units.
fn resample_count(units: usize) -> usize {
    if units < SMALL_SAMPLE {
        SMALL_SAMPLE_RESAMPLES
    } else {
        RESAMPLES
    }
}

/// Returns sums of units drawn with replacement (B. Efron, R. Tibshirani, An Introduction to the
/// Bootstrap, 1993). Whole units are drawn because the segments of one unit depend on each other.
/// Empty with fewer than [`MIN_UNITS`] units.
fn resampled(units: &[&Summary], times: usize, rng: &mut impl Rng) -> Vec<Summary> {
    if units.len() < MIN_UNITS {
        return Vec::new();
    }
    let draw = |_| {
        let mut times = vec![0; units.len()];
        for _ in units {
            times[rng.random_range(0..units.len())] += 1;
        }
        let mut sum = Summary::default();
        for (unit, times) in units.iter().zip(times).filter(|(_, times)| *times > 0) {
            sum.add(unit, times);
        }
        sum
    };
    (0..times).map(draw).collect()
}

/// Returns a generator that gives equal numbers for equal seeds.
pub(crate) fn seeded_rng(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}

/// Sum of units with its bootstrap resamples, which all estimates share.
pub(crate) struct Sample {
    /// Sum of the units.
    pub(crate) sum: Summary,
    /// Number of units.
    pub(crate) units: usize,
    resamples: Vec<Summary>,
}

impl Sample {
    /// Resamples the units. `min_units` is the number of units of the smaller arm, so that both
    /// arms have equally many resamples.
    pub(crate) fn new(units: &[&Summary], smaller_arm: usize, rng: &mut impl Rng) -> Self {
        let mut sum = Summary::default();
        units.iter().for_each(|unit| sum += unit);
        Self {
            sum,
            units: units.len(),
            resamples: resampled(units, resample_count(smaller_arm), rng),
        }
    }

    /// Returns the value of the sum with its interval over units; `None` without a value.
    pub(crate) fn estimate(&self, formula: Formula) -> Option<Estimate> {
        let resamples = || self.resamples.iter().filter_map(formula).collect();
        formula(&self.sum).map(|value| Estimate::new(value, resamples(), self.units))
    }

    /// Returns the value of this sample minus the value of `others` at the analysis with this
    /// ordinal.
    pub(crate) fn difference(
        &self,
        others: &Self,
        formula: Formula,
        ordinal: usize,
    ) -> Option<Estimate> {
        let difference = |one, other| Some(formula(one)? - formula(other)?);
        let pairs = self.resamples.iter().zip(&others.resamples);
        let resamples = || {
            pairs
                .filter_map(|(one, other)| difference(one, other))
                .collect()
        };
        let fewer = self.units.min(others.units);
        let value = difference(&self.sum, &others.sum)?;
        let estimate = Estimate::new(value, resamples(), fewer);
        let widened = |end| value + (end - value) * interval_factor(ordinal);
        let interval = estimate.interval;
        let interval = interval.map(|(low, high)| (widened(low), widened(high)));
        Some(Estimate { value, interval })
    }
}

#[cfg(test)]
mod tests {
    use pillion_stats::measure::share;
    use rand_distr::{Distribution, Normal};

    use super::*;

    fn unit(segments: u64, late_us: u64) -> Summary {
        Summary {
            segments,
            late_us,
            ..Summary::default()
        }
    }

    fn estimate(units: &[&Summary], formula: Formula) -> Option<Estimate> {
        Sample::new(units, units.len(), &mut seeded_rng(units.len() as u64)).estimate(formula)
    }

    const MEAN: Formula = |all| share(all.late_us, all.segments);

    #[test]
    fn interval_is_over_units_not_segments() {
        // A million segments of six different units prove no more than six values.
        let units: Vec<_> = (0..6)
            .map(|late| unit(1_000_000, late * 1_000_000))
            .collect();
        let all: Vec<_> = units.iter().collect();
        let estimate = estimate(&all, MEAN).unwrap();
        let (low, high) = estimate.interval.unwrap();
        assert!((estimate.value - 2.5).abs() < 1e-9);
        assert!(low < 1.7 && high > 3.3, "{low} {high}");
    }

    #[test]
    fn small_sample_intervals_have_nominal_coverage() {
        let rng = &mut seeded_rng(1);
        let latency = Normal::new(5_000.0, 1_000.0).unwrap();
        for count in [5, 8] {
            let covered = (0..100)
                .filter(|_| {
                    let units: Vec<_> = (0..count)
                        .map(|_| unit(1, latency.sample(rng) as u64))
                        .collect();
                    let all: Vec<_> = units.iter().collect();
                    let (low, high) = estimate(&all, MEAN).unwrap().interval.unwrap();
                    low <= 5_000.0 && 5_000.0 <= high
                })
                .count();
            // 95 are expected. The middle 95 % of the resamples would cover 83 with five units.
            assert!(covered >= 90, "{count}: {covered}");
        }
    }

    #[test]
    fn identical_units_have_no_interval() {
        let units = vec![unit(10, 0); 20];
        let all: Vec<_> = units.iter().collect();
        let none = Some(Estimate {
            value: 0.0,
            interval: None,
        });
        assert_eq!(estimate(&all, MEAN), none);
    }

    #[test]
    fn few_units_have_value_without_interval() {
        let units = [unit(10, 50), unit(10, 70)];
        let all: Vec<_> = units.iter().collect();
        let estimate = estimate(&all, MEAN).unwrap();
        assert_eq!(
            (estimate.value.round() as u64, estimate.interval),
            (6, None)
        );
    }

    #[test]
    fn zero_segments_give_no_value() {
        assert_eq!(estimate(&[], MEAN), None);
    }

    #[test]
    fn both_arms_have_resample_count_of_smaller_arm() {
        let units: Vec<_> = (0..60).map(|late| unit(100, late)).collect();
        let units: Vec<_> = units.iter().collect();
        let rng = &mut seeded_rng(1);
        let (small, large) = (&units[..5], &units[..]);
        let resamples = [small, large].map(|it| Sample::new(it, small.len(), rng).resamples.len());
        assert_eq!(resamples, [SMALL_SAMPLE_RESAMPLES; 2]);
        let independent = Sample::new(large, large.len(), rng).resamples.len();
        assert_eq!(independent, RESAMPLES);
    }
}
