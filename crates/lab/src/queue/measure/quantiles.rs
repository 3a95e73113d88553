use pillion_stats::measure::{Percentile, nearest_rank};
use serde::Serialize;

/// A distribution in short; all `None` where it is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// The mean.
    pub mean: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// The 90th percentile.
    pub p90: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The 99.9th percentile.
    pub p99_9: Option<f64>,
    /// The greatest value.
    pub max: Option<f64>,
}

impl Quantiles {
    /// The quantiles of numbers in any order, divided by `unit`. A quantile is one of the numbers:
    /// the least that is not exceeded by the share.
    #[must_use]
    pub fn of(mut numbers: Vec<u64>, unit: f64) -> Self {
        numbers.sort_unstable();
        Self::weighted(
            &numbers
                .into_iter()
                .map(|number| (number, 1))
                .collect::<Vec<_>>(),
            unit,
        )
    }

    /// The quantiles of numbers in ascending order, each with its weight, divided by `unit`.
    pub(crate) fn weighted(numbers: &[(u64, u64)], unit: f64) -> Self {
        let total: u64 = numbers.iter().map(|(_, weight)| weight).sum();
        if total == 0 {
            return Self::default();
        }
        let sum: f64 = numbers
            .iter()
            .map(|&(number, weight)| number as f64 * weight as f64)
            .sum();
        let mut seen = 0;
        let up_to: Vec<_> = numbers
            .iter()
            .map(|&(number, weight)| {
                seen += weight;
                (seen, number)
            })
            .collect();
        let quantile = |percentile: Percentile| {
            let rank = nearest_rank(percentile.share, total)?;
            let place = up_to.partition_point(|(seen, _)| *seen < rank);
            up_to.get(place).map(|(_, number)| *number as f64 / unit)
        };
        Self {
            mean: Some(sum / total as f64 / unit),
            p50: quantile(Percentile::P50),
            p90: quantile(Percentile::P90),
            p99: quantile(Percentile::P99),
            p99_9: quantile(Percentile::P99_9),
            max: numbers.last().map(|(number, _)| *number as f64 / unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_least_number_that_the_share_does_not_exceed() {
        let of = Quantiles::of((1..=1000).rev().collect(), 1.0);
        assert_eq!((of.p50, of.p90), (Some(500.0), Some(900.0)));
        assert_eq!((of.p99, of.p99_9), (Some(990.0), Some(999.0)));
        assert_eq!((of.mean, of.max), (Some(500.5), Some(1000.0)));
        assert_eq!(Quantiles::of(vec![], 1.0), Quantiles::default());
    }

    #[test]
    fn a_number_counts_as_often_as_it_weighs() {
        let of = Quantiles::weighted(&[(0, 60), (10, 30), (20, 10)], 10.0);
        assert_eq!((of.p50, of.p90, of.p99), (Some(0.0), Some(1.0), Some(2.0)));
        assert_eq!(of.mean, Some(0.5));
    }
}
