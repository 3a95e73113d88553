use pillion_stats::measure::{bootstrap_interval, bootstrap_tail};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::trial::{Of, Summary};

/// How often is drawn anew for an interval.
const RESAMPLES: usize = 400;

/// The same where there are few units, whose interval ends far out among what is drawn.
const RESAMPLES_OF_FEW: usize = 2_000;

/// Fewer units than so many are few.
const FEW: usize = 30;

/// Units without which an interval would say more than the data do.
pub(crate) const FEWEST: usize = 5;

/// A value, and the interval that has the true one with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The value of what was observed.
    pub value: f64,
    /// The interval's ends; `None` where there are too few units for one, or all are alike.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// With the interval that values from resamples of so many units give.
    pub(crate) fn new(value: f64, resampled: Vec<f64>, units: usize) -> Self {
        let interval = bootstrap_interval(resampled, bootstrap_tail(units));
        Self {
            value,
            interval: interval.filter(|(low, high)| low < high),
        }
    }
}

/// How often is drawn anew from so many units.
fn resamples(units: usize) -> usize {
    if units < FEW {
        RESAMPLES_OF_FEW
    } else {
        RESAMPLES
    }
}

/// Summaries as they might have been: so many sums of units drawn with replacement (B. Efron,
/// R. Tibshirani, An Introduction to the Bootstrap, 1993). What is drawn is a whole unit, for the
/// segments of one belong together; with fewer than five there are none.
fn resampled(units: &[&Summary], times: usize, random: &mut impl Rng) -> Vec<Summary> {
    if units.len() < FEWEST {
        return Vec::new();
    }
    let draw = |_| {
        let mut times = vec![0; units.len()];
        for _ in units {
            times[random.random_range(0..units.len())] += 1;
        }
        let mut sum = Summary::default();
        for (unit, times) in units.iter().zip(times).filter(|(_, times)| *times > 0) {
            sum.add(unit, times);
        }
        sum
    };
    (0..times).map(draw).collect()
}

/// A generator of which the same number gives the same draws.
pub(crate) fn generator(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}

/// Units together, as they are and as they might have been: drawn once for all that is asked of them.
pub(crate) struct Sample {
    /// The units together.
    pub(crate) sum: Summary,
    /// How many there are.
    pub(crate) units: usize,
    again: Vec<Summary>,
}

impl Sample {
    /// Of units that are compared with others: `fewest` is the smaller number of both, by which as many
    /// are drawn anew of each.
    pub(crate) fn new(units: &[&Summary], fewest: usize, random: &mut impl Rng) -> Self {
        let mut sum = Summary::default();
        units.iter().for_each(|unit| sum += unit);
        Self {
            sum,
            units: units.len(),
            again: resampled(units, resamples(fewest), random),
        }
    }

    /// A measure of the units together, with its interval over units; `None` if they have no value.
    pub(crate) fn estimate(&self, of: Of) -> Option<Estimate> {
        let again = || self.again.iter().filter_map(of).collect();
        of(&self.sum).map(|value| Estimate::new(value, again(), self.units))
    }

    /// By how much a measure of these is more than that of others.
    pub(crate) fn difference(&self, others: &Self, of: Of) -> Option<Estimate> {
        let difference = |one, other| Some(of(one)? - of(other)?);
        let pairs = self.again.iter().zip(&others.again);
        let again = || {
            pairs
                .filter_map(|(one, other)| difference(one, other))
                .collect()
        };
        let fewer = self.units.min(others.units);
        difference(&self.sum, &others.sum).map(|value| Estimate::new(value, again(), fewer))
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

    fn estimate(units: &[&Summary], of: Of) -> Option<Estimate> {
        Sample::new(units, units.len(), &mut generator(units.len() as u64)).estimate(of)
    }

    const MEAN: Of = |all| share(all.late_us, all.segments);

    #[test]
    fn the_interval_is_over_units_and_not_over_segments() {
        // A million segments of six units that differ say no more than six.
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
    fn intervals_of_few_units_have_the_true_value_as_often_as_they_say() {
        let random = &mut generator(1);
        let latency = Normal::new(5_000.0, 1_000.0).unwrap();
        for count in [5, 8] {
            let held = (0..100)
                .filter(|_| {
                    let units: Vec<_> = (0..count)
                        .map(|_| unit(1, latency.sample(random) as u64))
                        .collect();
                    let all: Vec<_> = units.iter().collect();
                    let (low, high) = estimate(&all, MEAN).unwrap().interval.unwrap();
                    low <= 5_000.0 && 5_000.0 <= high
                })
                .count();
            // 95 are due; were the interval of 95 % of what is drawn, 83 with five units.
            assert!(held >= 90, "{count}: {held}");
        }
    }

    #[test]
    fn units_that_are_all_alike_have_no_interval() {
        let units = vec![unit(10, 0); 20];
        let all: Vec<_> = units.iter().collect();
        let none = Some(Estimate {
            value: 0.0,
            interval: None,
        });
        assert_eq!(estimate(&all, MEAN), none);
    }

    #[test]
    fn few_units_have_a_value_and_no_interval() {
        let units = [unit(10, 50), unit(10, 70)];
        let all: Vec<_> = units.iter().collect();
        let estimate = estimate(&all, MEAN).unwrap();
        assert_eq!(
            (estimate.value.round() as u64, estimate.interval),
            (6, None)
        );
    }

    #[test]
    fn without_segments_there_is_no_value() {
        assert_eq!(estimate(&[], MEAN), None);
    }

    #[test]
    fn what_few_are_compared_with_is_drawn_as_often_as_they() {
        let units: Vec<_> = (0..60).map(|late| unit(100, late)).collect();
        let units: Vec<_> = units.iter().collect();
        let random = &mut generator(1);
        let (few, many) = (&units[..5], &units[..]);
        let drawn = [few, many].map(|it| Sample::new(it, few.len(), random).again.len());
        assert_eq!(drawn, [RESAMPLES_OF_FEW; 2]);
        let alone = Sample::new(many, many.len(), random).again.len();
        assert_eq!(alone, RESAMPLES);
    }
}
