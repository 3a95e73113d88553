//! How sure a result is: intervals of confidence.

use super::quantile;

/// Student's t for 95 %, two-sided, by degrees of freedom from 1; of more, the last is little too wide.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// How many standard errors an interval of 95 % confidence reaches to either side of the mean of so
/// many values, two or more, whose deviation is known from them alone: Student's t.
fn students_t(values: usize) -> f64 {
    T[values.saturating_sub(2).min(T.len() - 1)]
}

/// The share of a normal distribution that lies so many standard deviations or more above its mean.
fn normal_tail(deviations: f64) -> f64 {
    libm::erfc(deviations / std::f64::consts::SQRT_2) / 2.0
}

/// The mean of values, and half of its 95 % interval by Student's t, for few values of which each is
/// a run of its own; no half for a single value, `None` without values.
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

/// The percentile interval of a bootstrap (B. Efron, R. Tibshirani, An Introduction to the Bootstrap,
/// 1993), for measures whose distribution is not known: `tail` is the share of the resampled values
/// beyond either end. `None` without values.
#[must_use]
pub fn bootstrap_interval(mut resampled: Vec<f64>, tail: f64) -> Option<(f64, f64)> {
    resampled.sort_unstable_by(f64::total_cmp);
    quantile(&resampled, tail).zip(quantile(&resampled, 1.0 - tail))
}

/// The tail of a 95 % [`bootstrap_interval`] over so many units: a little less than 2.5 %, because
/// units drawn from a few vary less than those that the few were drawn from (T. Hesterberg, The
/// American Statistician 69(4), 2015).
#[must_use]
pub fn bootstrap_tail(units: usize) -> f64 {
    let n = units.max(2) as f64;
    normal_tail(students_t(units) * (n / (n - 1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_is_as_in_the_tables() {
        assert_eq!(
            [2, 5, 31, 1000].map(students_t),
            [12.706, 2.776, 2.042, 2.042]
        );
    }

    #[test]
    fn a_mean_has_an_interval_by_students_t() {
        let (mean, half) = mean_with_interval(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        // 2.776 * sqrt(2.5) / sqrt(5)
        assert!(mean == 3.0 && (half.unwrap() - 1.963).abs() < 1e-3);
        assert_eq!(mean_with_interval(&[7.0]), Some((7.0, None)));
        assert_eq!(mean_with_interval(&[]), None);
    }

    #[test]
    fn a_bootstrap_interval_leaves_its_tail_at_either_end() {
        let values: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        assert_eq!(bootstrap_interval(values, 0.025), Some((25.0, 975.0)));
        assert_eq!(bootstrap_interval(Vec::new(), 0.025), None);
        assert!(bootstrap_tail(5) < bootstrap_tail(30) && bootstrap_tail(30) < 0.025);
    }

    #[test]
    fn a_normal_tail_is_as_in_the_tables() {
        assert!((normal_tail(1.96) - 0.025).abs() < 1e-5);
        assert!((normal_tail(0.0) - 0.5).abs() < 1e-12);
    }
}
