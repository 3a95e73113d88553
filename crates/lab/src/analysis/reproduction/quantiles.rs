//! Statistics of a distribution, of which the quantiles at [`levels`] are kept.

use std::f64::consts::TAU;

use crate::measure_ref::{BODY, Statistic, levels};

/// A statistic of these quantiles; none of what is not kept.
pub(super) fn statistic(quantiles: &[f64], asked: Statistic) -> Option<f64> {
    match asked {
        Statistic::Percentile(share) => at(quantiles, share),
        Statistic::Above(bound) => Some(above(quantiles, bound)),
        Statistic::Between(low, high) => Some(above(quantiles, low) - above(quantiles, high)),
        Statistic::InSteps { height, above } => in_steps(quantiles, height, above),
    }
}

/// The quantile at a share; none if it is not among those that are kept.
fn at(quantiles: &[f64], share: f64) -> Option<f64> {
    let place = levels().position(|level| (level - share).abs() < 1e-9)?;
    quantiles.get(place).copied()
}

/// The share of values that are larger.
fn above(quantiles: &[f64], bound: f64) -> f64 {
    let shares: Vec<f64> = levels().collect();
    let over = quantiles.iter().position(|it| *it > bound);
    over.map_or(0.0, |place| 1.0 - shares[place.saturating_sub(1)])
}

/// How much the values above a bound are whole steps apart from each other: the mean resultant length
/// of their places within a step (Mardia and Jupp, Directional Statistics, section 2.3.1), which is 1
/// where a distribution function is a staircase with steps of this height, and about 0 where it is
/// smooth. None where no value is above the bound.
fn in_steps(quantiles: &[f64], height: f64, bound: f64) -> Option<f64> {
    // Those of the far tail stand for too few values each.
    let body = quantiles.iter().take(BODY).filter(|it| **it > bound);
    let places = body.map(|it| (it / height * TAU).sin_cos());
    let (sines, cosines): (Vec<f64>, Vec<f64>) = places.unzip();
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let length = f64::hypot(mean(&sines), mean(&cosines));
    length.is_finite().then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latencies of 150 and, for the upper half, of what follows from the place among these.
    fn quantiles(late: fn(f64) -> f64) -> Vec<f64> {
        let of = |level: f64| match level < 0.5 {
            true => 150.0,
            false => late(2.0 * level - 1.0),
        };
        levels().map(of).collect()
    }

    #[test]
    fn a_staircase_is_told_from_a_slope() {
        let steps = |height, above| Statistic::InSteps { height, above };
        let slope = quantiles(|share| 160.0 + 300.0 * share);
        assert!(statistic(&slope, steps(30.0, 155.0)).unwrap() < 0.01);
        let stairs = quantiles(|share| 170.0 + 30.0 * (10.0 * share).floor());
        let of_stairs = |asked| statistic(&stairs, asked).unwrap();
        assert!((of_stairs(steps(30.0, 155.0)) - 1.0).abs() < 1e-9);
        assert!(of_stairs(steps(40.0, 155.0)) < 0.3);
        assert_eq!(statistic(&stairs, steps(30.0, 1000.0)), None);
    }

    #[test]
    fn a_share_may_lie_between_bounds() {
        let slope = quantiles(|share| 160.0 + 300.0 * share);
        let share = statistic(&slope, Statistic::Between(190.0, 250.0)).unwrap();
        assert!((share - 0.1).abs() < 2e-3, "{share}");
        assert_eq!(
            statistic(&slope, Statistic::Between(500.0, 600.0)),
            Some(0.0)
        );
    }
}
