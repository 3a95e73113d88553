//! How sure a result is: intervals of confidence.

/// Student's t for 95 %, two-sided, by degrees of freedom from 1; of more, the last is little too wide.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// How many standard errors an interval of 95 % confidence reaches to either side of the mean of so
/// many values, two or more, whose deviation is known from them alone: Student's t.
#[must_use]
pub fn students_t(values: usize) -> f64 {
    T[values.saturating_sub(2).min(T.len() - 1)]
}

/// The share of a normal distribution that lies so many standard deviations or more above its mean.
#[must_use]
pub fn normal_tail(deviations: f64) -> f64 {
    libm::erfc(deviations / std::f64::consts::SQRT_2) / 2.0
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
    fn a_normal_tail_is_as_in_the_tables() {
        assert!((normal_tail(1.96) - 0.025).abs() < 1e-5);
        assert!((normal_tail(0.0) - 0.5).abs() < 1e-12);
    }
}
