use std::time::Duration;

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64;

use super::ConfigError;
use crate::traffic::clock::ns;
use crate::traffic::wire::content::mix;

/// How much later than the one before each stream of a group starts (thesis, section 3.3.5).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RampUp {
    /// The mean inter-transmission time divided by the number of streams: the starts are spread
    /// over one such time. Greedy streams and those on a common tick all start at once.
    Spread,
    /// Always the same.
    Fixed(Duration),
    /// From a normal distribution; what would be negative is 0.
    Normal {
        /// Mean.
        mean: Duration,
        /// Standard deviation.
        sd: Duration,
    },
}

const DAY: Duration = Duration::from_secs(86_400);

impl RampUp {
    pub(super) fn validate(self) -> Result<(), ConfigError> {
        let times = match self {
            Self::Spread => [Duration::ZERO; 2],
            Self::Fixed(time) => [time; 2],
            Self::Normal { mean, sd } => [mean, sd],
        };
        match times.into_iter().find(|time| *time > DAY) {
            Some(time) => Err(ConfigError::RampUpTime(time.as_secs_f64() * 1e3)),
            None => Ok(()),
        }
    }

    /// The starts of a group's streams in nanoseconds after the first one's, without end. `spread`
    /// is what [`RampUp::Spread`] stands for.
    pub(super) fn starts(self, spread: Duration, seed: u64) -> impl Iterator<Item = u64> {
        const RAMP_UP: u64 = 0x7261_6d70;
        let (mean, sd) = match self {
            Self::Spread => (spread, Duration::ZERO),
            Self::Fixed(time) => (time, Duration::ZERO),
            Self::Normal { mean, sd } => (mean, sd),
        };
        let (mean, sd) = (ns(mean), ns(sd) as f64);
        let mut draws = Pcg64::seed_from_u64(mix(seed ^ RAMP_UP));
        std::iter::successors(Some(0u64), move |start| {
            let standard: f64 = match sd > 0.0 {
                true => StandardNormal.sample(&mut draws),
                false => 0.0,
            };
            let step = (mean as f64 + sd * standard).max(0.0);
            Some(start.saturating_add(step as u64))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_fixed_ramp_up_is_a_beat() {
        let starts: Vec<u64> = RampUp::Fixed(100 * MS).starts(MS, 1).take(3).collect();
        assert_eq!(starts, [0, 100_000_000, 200_000_000]);
        let starts: Vec<u64> = RampUp::Spread.starts(MS, 1).take(3).collect();
        assert_eq!(starts, [0, 1_000_000, 2_000_000]);
    }

    #[test]
    fn a_normal_ramp_up_has_its_mean_and_deviation_and_follows_the_seed() {
        let ramp_up = RampUp::Normal {
            mean: 100 * MS,
            sd: 10 * MS,
        };
        let starts = |seed| -> Vec<u64> { ramp_up.starts(MS, seed).take(10_001).collect() };
        assert_eq!(starts(1), starts(1));
        assert_ne!(starts(1), starts(2));
        let steps: Vec<f64> = starts(1)
            .windows(2)
            .map(|s| (s[1] - s[0]) as f64 / 1e6)
            .collect();
        let mean = steps.iter().sum::<f64>() / 1e4;
        let variance = steps.iter().map(|step| (step - mean).powi(2)).sum::<f64>() / 1e4;
        // Four standard errors of the mean; about as many of the deviation.
        assert!(
            (mean - 100.0).abs() < 0.4 && (variance.sqrt() - 10.0).abs() < 0.3,
            "{mean}"
        );
    }
}
