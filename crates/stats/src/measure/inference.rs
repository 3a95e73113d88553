//! Confidence intervals.

use super::quantile;

/// Student's t for 95 %, two-sided, by degrees of freedom from 1. Beyond 30, the last entry is
/// used, which is slightly too wide.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// Half-width in standard errors of a 95 % confidence interval for the mean of `values` values (at
/// least two), if their deviation is estimated from the same values (Student's t).
fn students_t(values: usize) -> f64 {
    T[values.saturating_sub(2).min(T.len() - 1)]
}

/// The share of a normal distribution at or above this many standard deviations from the mean.
fn normal_tail(deviations: f64) -> f64 {
    libm::erfc(deviations / std::f64::consts::SQRT_2) / 2.0
}

/// The standard deviations from the mean at or above which this share of a normal distribution is, for
/// shares below one half; within 0.003 (M. Abramowitz, I. A. Stegun, Handbook of Mathematical Functions,
/// 26.2.22).
#[must_use]
pub fn normal_deviations(tail: f64) -> f64 {
    let t = (-2.0 * tail.ln()).sqrt();
    t - (2.30753 + 0.27061 * t) / (1.0 + t * (0.99229 + 0.04481 * t))
}

/// The mean, and half of its 95 % confidence interval by Student's t. Intended for few values, one
/// per run. The half-width is `None` for a single value; the result is `None` without values.
#[must_use]
pub fn mean_with_interval(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let count = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let half = (values.len() > 1).then(|| {
        let squares: f64 = values.iter().map(|it| (it - mean).powi(2)).sum();
        let deviation = (squares / (count - 1.0)).sqrt();
        students_t(values.len()) * deviation / count.sqrt()
    });
    Some((mean, half))
}

/// The percentile interval of a bootstrap (B. Efron, R. Tibshirani, An Introduction to the
/// Bootstrap, 1993), for measures of unknown distribution. `tail` is the share of resampled values
/// beyond each end. `None` without values.
#[must_use]
pub fn bootstrap_interval(mut resampled: Vec<f64>, tail: f64) -> Option<(f64, f64)> {
    resampled.sort_unstable_by(f64::total_cmp);
    quantile(&resampled, tail).zip(quantile(&resampled, 1.0 - tail))
}

/// The tail for a 95 % [`bootstrap_interval`] over `units` units. It is slightly below 2.5 %,
/// because resampled units vary less than the population (T. Hesterberg, The American Statistician
/// 69(4), 2015).
#[must_use]
pub fn bootstrap_tail(units: usize) -> f64 {
    let n = units.max(2) as f64;
    normal_tail(students_t(units) * (n / (n - 1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_t_equals_published_table() {
        assert_eq!(
            [2, 5, 31, 1000].map(students_t),
            [12.706, 2.776, 2.042, 2.042]
        );
    }

    #[test]
    fn mean_has_interval_by_students_t() {
        let (mean, half) = mean_with_interval(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        // 2.776 * sqrt(2.5) / sqrt(5)
        assert!(mean == 3.0 && (half.unwrap() - 1.963).abs() < 1e-3);
        assert_eq!(mean_with_interval(&[7.0]), Some((7.0, None)));
        assert_eq!(mean_with_interval(&[]), None);
    }

    #[test]
    fn bootstrap_interval_excludes_tail_at_each_end() {
        let values: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        assert_eq!(bootstrap_interval(values, 0.025), Some((25.0, 975.0)));
        assert_eq!(bootstrap_interval(Vec::new(), 0.025), None);
        assert!(bootstrap_tail(5) < bootstrap_tail(30) && bootstrap_tail(30) < 0.025);
    }

    #[test]
    fn normal_tail_equals_published_table() {
        assert!((normal_tail(1.96) - 0.025).abs() < 1e-5);
        assert!((normal_tail(0.0) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn normal_deviations_invert_normal_tail() {
        for deviations in [0.5, 1.96, 2.2414, 3.3223, 5.0] {
            let found = normal_deviations(normal_tail(deviations));
            assert!((found - deviations).abs() < 0.003, "{found}");
        }
    }
}
