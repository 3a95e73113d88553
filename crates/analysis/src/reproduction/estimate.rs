/// A value over several seeds.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Estimate {
    /// The mean over runs.
    pub mean: f64,
    /// Half of the interval that holds the mean with a confidence of 95 %, by Student's t; none of
    /// a single run.
    pub half: Option<f64>,
    /// How many runs it is of.
    pub runs: usize,
}

/// Student's t for 95 %, two-sided, by degrees of freedom from 1; of more, the last is little too wide.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

impl Estimate {
    /// Of the values of runs, each with its own seed; none without a run.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let runs = values.len();
        if runs == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / runs as f64;
        let half = (runs > 1).then(|| {
            let squares: f64 = values.iter().map(|it| (it - mean).powi(2)).sum();
            let deviation = (squares / (runs - 1) as f64).sqrt();
            let t = T[(runs - 2).min(T.len() - 1)];
            t * deviation / (runs as f64).sqrt()
        });
        Some(Self { mean, half, runs })
    }

    /// The lower end of the interval.
    #[must_use]
    pub fn low(&self) -> f64 {
        self.mean - self.half.unwrap_or(0.0)
    }

    /// The upper end.
    #[must_use]
    pub fn high(&self) -> f64 {
        self.mean + self.half.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_by_students_t() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((estimate.mean, estimate.runs), (3.0, 5));
        // 2.776 * sqrt(2.5) / sqrt(5)
        assert!((estimate.half.unwrap() - 1.963).abs() < 1e-3);
        assert_eq!(Estimate::of(&[7.0]).unwrap().half, None);
        assert_eq!(Estimate::of(&[]), None);
    }
}
