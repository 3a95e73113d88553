//! Mean and deviation of the delays that frames had.

use std::time::Instant;

use crate::path::Obtained;

/// Collects by how much delays exceed those set, by Welford's algorithm (Technometrics 4(3), 1962),
/// which stays exact where the deviation is small against the mean.
#[derive(Default)]
pub(crate) struct Variation {
    count: f64,
    mean_us: f64,
    /// Sum of the squares of the distances from the mean.
    squares: f64,
}

impl Variation {
    /// Takes a departure, and when it would have been with the delay set.
    pub fn record(&mut self, departure: Instant, steady: Instant) {
        let later = departure.saturating_duration_since(steady).as_secs_f64();
        let earlier = steady.saturating_duration_since(departure).as_secs_f64();
        let us = (later - earlier) * 1e6;
        self.count += 1.0;
        let distance = us - self.mean_us;
        self.mean_us += distance / self.count;
        self.squares += distance * (us - self.mean_us);
    }

    pub fn summary(&self) -> Obtained {
        Obtained {
            mean_us: self.mean_us.round() as i64,
            sd_us: (self.squares / self.count.max(1.0)).sqrt().round() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn mean_and_deviation_are_those_of_the_differences() {
        let mut variation = Variation::default();
        assert_eq!(variation.summary(), Obtained::default());
        let us = Duration::from_micros;
        let steady = Instant::now() + us(1_000);
        for departure in [steady - us(70), steady + us(10), steady - us(30)] {
            variation.record(departure, steady);
        }
        let (mean_us, sd_us) = (-30, 33);
        assert_eq!(variation.summary(), Obtained { mean_us, sd_us });
    }
}
