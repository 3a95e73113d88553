use pillion_stats::measure::mean_with_interval;

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

impl Estimate {
    /// Of the values of runs, each with its own seed; none without a run.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let (mean, half) = mean_with_interval(values)?;
        let runs = values.len();
        Some(Self { mean, half, runs })
    }

    /// The mean, both ends of the interval and the number of runs as comma-separated values; empty but
    /// for the last where there is none.
    pub(super) fn csv(estimate: Option<&Self>) -> String {
        estimate.map_or_else(
            || ",,,0".to_owned(),
            |it| format!("{},{},{},{}", it.mean, it.low(), it.high(), it.runs),
        )
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
