//! How the delay of a direction varies with time.

use std::{
    f64::consts::FRAC_PI_2,
    time::{Duration, Instant},
};

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_pcg::Pcg64;

/// Standard deviations beyond which the delay does not go, as in netem's table.
pub(crate) const FARTHEST: u32 = 4;

/// Time between two independent values, in standard deviations. Between two of `FARTHEST` the delay
/// falls by no more than π/2 · √2 · `FARTHEST` = 8.9 in this time: less than one second a second,
/// so that no packet overtakes another.
const STEP: f64 = 9.0;

/// A stationary process of mean 0: independent normal values at equal distances of time, and
/// between two neighbours `a` and `b` the value a cos φ + b sin φ, where φ grows from 0 to π/2.
/// For cos² + sin² = 1 it has the same normal distribution at every time.
pub(crate) struct Jitter {
    /// Standard deviation, in seconds; not 0.
    sd: f64,
    /// How far the first packet is in its interval, 0 to 1.
    phase: f64,
    generator: Pcg64,
    interval: Option<Interval>,
}

/// The time between two of the independent values.
struct Interval {
    /// When the first packet came.
    origin: Instant,
    /// How many went before.
    number: u64,
    /// The values at both ends, in standard deviations.
    ends: [f64; 2],
}

impl Jitter {
    /// Jitter with this standard deviation, with the next generator from `source`; `None` where it
    /// is 0.
    pub fn new(source: &mut Pcg64, sd: Duration) -> Option<Self> {
        let mut generator = Pcg64::from_rng(source);
        let phase = generator.random();
        (!sd.is_zero()).then_some(Self {
            sd: sd.as_secs_f64(),
            phase,
            generator,
            interval: None,
        })
    }

    /// By how much longer than its delay a packet takes now, in seconds. Times do not go back.
    pub fn at(&mut self, now: Instant) -> f64 {
        let origin = self.interval.as_ref().map_or(now, |it| it.origin);
        let intervals = (now - origin).as_secs_f64() / (STEP * self.sd) + self.phase;
        let number = intervals as u64;
        let ends = match &self.interval {
            Some(same) if same.number == number => same.ends,
            Some(last) if last.number + 1 == number => [last.ends[1], self.draw()],
            _ => [self.draw(), self.draw()],
        };
        self.interval = Some(Interval {
            origin,
            number,
            ends,
        });
        let (sin, cos) = (intervals.fract() * FRAC_PI_2).sin_cos();
        within(ends[0] * cos + ends[1] * sin) * self.sd
    }

    fn draw(&mut self) -> f64 {
        within(self.generator.sample(StandardNormal))
    }
}

fn within(deviations: f64) -> f64 {
    let farthest = f64::from(FARTHEST);
    deviations.clamp(-farthest, farthest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The values at times so far apart, in standard deviations of 5 ms.
    fn values(seed: u64, spacing: Duration) -> Vec<f64> {
        let mut jitter = Jitter::new(&mut Pcg64::seed_from_u64(seed), 5 * MS).unwrap();
        let begin = Instant::now();
        let times = (0..40_000).map(|number| begin + spacing * number);
        times.map(|time| jitter.at(time) / 5e-3).collect()
    }

    fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
        let count = values.len() as f64;
        values.sum::<f64>() / count
    }

    #[test]
    fn mean_and_deviation_do_not_depend_on_how_often_packets_come() {
        // Of 890, 8,900, 40,000 and 40,000 independent values, for a step takes 45 ms.
        for (spacing, error) in [
            (MS, 0.04),
            (10 * MS, 0.011),
            (91 * MS, 0.005),
            (900 * MS, 0.005),
        ] {
            let values = values(1, spacing);
            let mean_of = mean(values.iter().copied());
            let sd = mean(values.iter().map(|it| it.powi(2))).sqrt();
            assert!(mean_of.abs() < 5.0 * error, "{spacing:?}: {mean_of}");
            assert!((sd - 1.0).abs() < 5.0 * error, "{spacing:?}: {sd}");
        }
    }

    #[test]
    fn the_distribution_is_normal() {
        let values = values(1, 91 * MS);
        for (beyond, expected) in [(0.0, 0.5), (1.0, 0.158_7), (2.0, 0.022_75)] {
            let share = mean(values.iter().map(|it| f64::from(u8::from(*it > beyond))));
            assert!((share - expected).abs() < 0.012, "{beyond}: {share}");
        }
        assert!(values.iter().all(|it| it.abs() <= f64::from(FARTHEST)));
    }

    #[test]
    fn it_falls_more_slowly_than_time_passes() {
        let values = values(1, MS / 5);
        let steepest = values.windows(2).map(|two| two[1] - two[0]);
        let steepest = steepest.fold(0.0, f64::min) * 5.0;
        assert!((-0.2..-0.05).contains(&steepest), "{steepest} ms in 0.2 ms");
        let mut jitter = Jitter::new(&mut Pcg64::seed_from_u64(1), 5 * MS).unwrap();
        let now = Instant::now();
        jitter.at(now);
        let number = jitter.interval.as_ref().unwrap().number;
        let ends = [4.0, -4.0];
        jitter.interval = Some(Interval {
            origin: now,
            number,
            ends,
        });
        let arrival = |us| {
            let after = Duration::from_micros(us);
            after.as_secs_f64() + jitter.at(now + after)
        };
        let times: Vec<f64> = (0..20_000).map(arrival).collect();
        assert!(times.windows(2).all(|two| two[0] < two[1]));
    }

    #[test]
    fn neighbours_are_alike_and_those_two_steps_apart_are_not() {
        let values = values(1, MS);
        let product = |ms| mean((0..values.len() - ms).map(|at| values[at] * values[at + ms]));
        let variance = product(0);
        let [near, far] = [2, 90].map(|ms| product(ms) / variance);
        assert!(near > 0.98 && far.abs() < 0.2, "{near} {far}");
    }

    #[test]
    fn the_same_seed_is_the_same_jitter() {
        assert_eq!(values(1, MS), values(1, MS));
        assert_ne!(values(1, MS), values(2, MS));
    }
}
