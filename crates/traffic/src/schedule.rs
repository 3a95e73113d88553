use std::time::Duration;

use rand::SeedableRng;
use rand_distr::{Distribution, Normal};
use rand_pcg::Pcg64;

use crate::clock::ns;
use crate::wire::content::mix;

/// When one stream's messages are due, in nanoseconds since the barrier opened.
///
/// The first message is due when the stream starts; each next one follows the due time (not the
/// sending) of the one before by an inter-transmission time from a normal distribution truncated
/// at 0: negative draws are drawn again. Equal arguments give an equal schedule.
#[derive(Debug, Clone)]
pub struct Schedule {
    due_ns: f64,
    end_ns: f64,
    itt_ns: Normal<f64>,
    draws: Pcg64,
}

impl Schedule {
    /// Messages of `stream` from `start` until just before `end`, both since the barrier opened.
    pub fn new(
        seed: u64,
        stream: u32,
        (itt, itt_sd): (Duration, Duration),
        (start, end): (Duration, Duration),
    ) -> Self {
        let [due_ns, end_ns, itt_ns, sd_ns] = [start, end, itt, itt_sd].map(|d| ns(d) as f64);
        Self {
            due_ns,
            end_ns,
            itt_ns: Normal::new(itt_ns, sd_ns).expect("durations are finite and not negative"),
            draws: Pcg64::seed_from_u64(mix(seed ^ mix(stream.into()))),
        }
    }

    fn itt(&mut self) -> f64 {
        loop {
            let itt = self.itt_ns.sample(&mut self.draws);
            if itt >= 0.0 {
                return itt;
            }
        }
    }
}

impl Iterator for Schedule {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let due = self.due_ns;
        if due >= self.end_ns {
            return None;
        }
        self.due_ns += self.itt();
        Some(due as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const HOUR: Duration = Duration::from_secs(3600);

    fn itts_ms(itt: u32, sd: u32) -> Vec<f64> {
        let due: Vec<u64> = Schedule::new(1, 0, (MS * itt, MS * sd), (MS, HOUR))
            .take(10_001)
            .collect();
        due.windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64 / 1e6)
            .collect()
    }

    #[test]
    fn same_seed_gives_same_schedule_and_another_gives_another() {
        let due = |seed, stream| -> Vec<u64> {
            Schedule::new(seed, stream, (MS * 30, MS * 3), (MS, MS * 3000)).collect()
        };
        assert_eq!(due(1, 2), due(1, 2));
        assert_ne!(due(1, 2), due(1, 3));
        assert_ne!(due(1, 2), due(2, 2));
    }

    #[test]
    fn mean_and_deviation_are_those_asked_for() {
        for (itt, sd) in [
            (10, 1),
            (15, 1),
            (25, 2),
            (30, 3),
            (50, 5),
            (75, 7),
            (100, 10),
        ] {
            let itts = itts_ms(itt, sd);
            let n = itts.len() as f64;
            let mean = itts.iter().sum::<f64>() / n;
            let variance = itts.iter().map(|itt| (itt - mean).powi(2)).sum::<f64>() / (n - 1.0);
            let (itt, sd) = (f64::from(itt), f64::from(sd));
            assert!((mean - itt).abs() < 0.05 * sd, "{mean} {itt}");
            assert!((variance.sqrt() - sd).abs() < 0.05 * sd, "{variance} {sd}");
        }
    }

    #[test]
    fn no_deviation_is_a_fixed_beat_from_the_start_to_before_the_end() {
        let due: Vec<u64> =
            Schedule::new(1, 0, (MS * 30, Duration::ZERO), (MS * 10, MS * 100)).collect();
        assert_eq!(due, [10_000_000, 40_000_000, 70_000_000]);
    }

    #[test]
    fn wide_deviation_never_goes_back_in_time() {
        let itts = itts_ms(1, 10);
        assert!(itts.iter().all(|&itt| itt >= 0.0));
        // Clamping instead of drawing again would leave nearly half of them at 0.
        assert!(itts.iter().filter(|&&itt| itt == 0.0).count() < 10);
    }
}
