//! What is asked of a distribution, of which the quantiles at [`levels`] are kept.

use std::f64::consts::TAU;

use super::asked;

/// How many of the quantiles stand for the body.
const BODY: usize = 1000;

/// The shares of a distribution at which its quantiles are kept: the body in steps of a thousandth, the
/// tail more finely.
pub(super) fn levels() -> impl Iterator<Item = f64> {
    let body = (0..BODY).map(|step| step as f64 / BODY as f64);
    body.chain([0.9995, 0.9999, 1.0])
}

/// What stands before the height of a step.
pub(super) const IN_STEPS: &str = "in steps of ";

/// A percentile, as `p97`; the share of values `above 150`, or `between 285 and 315`; or how much those
/// above a bound lie `in steps of 30 above 155`. None of what is not known.
pub(super) fn asked(quantiles: &[f64], what: &str) -> Option<f64> {
    if let Some(share) = asked::percentile(what) {
        return at(quantiles, share);
    }
    if let Some(bound) = what.strip_prefix("above ") {
        return Some(above(quantiles, asked::number(bound)?));
    }
    if let Some(bounds) = what.strip_prefix("between ") {
        let (low, high) = bounds.split_once(" and ")?;
        let [low, high] = [asked::number(low)?, asked::number(high)?];
        return (low <= high).then(|| above(quantiles, low) - above(quantiles, high));
    }
    let (height, bound) = what.strip_prefix(IN_STEPS)?.split_once(" above ")?;
    in_steps(quantiles, asked::number(height)?, asked::number(bound)?)
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
        let slope = quantiles(|share| 160.0 + 300.0 * share);
        assert!(asked(&slope, "in steps of 30 above 155").unwrap() < 0.01);
        let stairs = quantiles(|share| 170.0 + 30.0 * (10.0 * share).floor());
        let of_stairs = |what| asked(&stairs, what).unwrap();
        assert!((of_stairs("in steps of 30 above 155") - 1.0).abs() < 1e-9);
        assert!(of_stairs("in steps of 40 above 155") < 0.3);
        assert_eq!(asked(&stairs, "in steps of 30 above 1000"), None);
        assert_eq!(asked(&stairs, "in steps of 0 above 155"), None);
    }

    #[test]
    fn a_share_may_lie_between_bounds() {
        let slope = quantiles(|share| 160.0 + 300.0 * share);
        let share = asked(&slope, "between 190 and 250").unwrap();
        assert!((share - 0.1).abs() < 2e-3, "{share}");
        assert_eq!(asked(&slope, "between 500 and 600"), Some(0.0));
        for wrong in ["between 250 and 190", "between 190", "between x and 9"] {
            assert_eq!(asked(&slope, wrong), None, "{wrong}");
        }
    }
}
