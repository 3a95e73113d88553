//! When packets are due behind the link: delay, jitter, and delays of single ports.

use std::f64::consts::FRAC_PI_2;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_pcg::Pcg64;

use crate::path::packet::ByPort;
use crate::path::{Direction, Obtained};

/// The delays of the frames of one direction.
pub(crate) struct Delays {
    common: Delay,
    own: ByPort<OwnDelay>,
    jitter: Option<Jitter>,
}

/// The delay of a port, and how it varies, if not with that of other packets.
struct OwnDelay {
    delay: Delay,
    jitter: Option<Option<Jitter>>,
}

/// A delay, and when the last packet that has it is due: none behind it overtakes it, not even by
/// what rounding to nanoseconds takes off.
struct Delay {
    time: Duration,
    last: Option<Instant>,
}

/// When a frame is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub at: Instant,
    /// When it would be due if its delay did not vary.
    pub steady: Instant,
}

impl Delays {
    /// The delays of a direction, with the next generators from `source`: one for all, and one for
    /// each port whose delay varies apart.
    pub fn new(source: &mut Pcg64, direction: &Direction) -> Self {
        let jitter = Jitter::new(source, direction.jitter);
        let own = direction.own.iter().map(|own| {
            let jitter = own.jitter.map(|sd| Jitter::new(source, sd));
            let delay = Delay::of(own.delay);
            (own.port, OwnDelay { delay, jitter })
        });
        Self {
            common: Delay::of(direction.delay),
            own: own.collect(),
            jitter,
        }
    }

    /// When a frame that has left the link, after those before it, is due.
    pub fn due(&mut self, departure: Instant, frame: &[u8]) -> Due {
        let common = self.jitter.as_mut().map_or(0.0, |it| it.at(departure));
        let (delay, jitter) = match self.own.of(frame) {
            Some(own) => (&mut own.delay, own.jitter.as_mut()),
            None => (&mut self.common, None),
        };
        let deviation = match jitter {
            Some(jitter) => jitter.as_mut().map_or(0.0, |it| it.at(departure)),
            None => common,
        };
        let size = Duration::from_secs_f64(deviation.abs());
        let time = match deviation < 0.0 {
            true => delay.time.saturating_sub(size),
            false => delay.time + size,
        };
        let at = departure + time;
        let at = delay.last.map_or(at, |last| last.max(at));
        delay.last = Some(at);
        Due {
            at,
            steady: departure + delay.time,
        }
    }
}

impl Delay {
    fn of(time: Duration) -> Self {
        Self { time, last: None }
    }
}

impl Due {
    /// The frame's time, so much later.
    pub fn later(self, by: Duration) -> Self {
        Self {
            at: self.at + by,
            steady: self.steady + by,
        }
    }
}

// How the delay of a direction varies with time.

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

// Mean and deviation of the delays that frames had.

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

    use rand::SeedableRng;

    use super::*;
    use crate::path::Own;
    use crate::path::packet::tests::ipv4;

    const MS: Duration = Duration::from_millis(1);

    fn delays(direction: &Direction) -> Delays {
        Delays::new(&mut Pcg64::seed_from_u64(1), direction)
    }

    #[test]
    fn a_port_s_own_jitter_is_apart_from_that_of_others() {
        let own = Own {
            jitter: Some(5 * MS),
            ..Own::delayed(20_001, 30 * MS)
        };
        let direction = Direction {
            own: vec![own, Own::delayed(20_002, 30 * MS)],
            ..Direction::delayed(75 * MS)
        };
        let mut delays = delays(&direction);
        let now = Instant::now();
        let mut varies = |port| {
            let packet = ipv4(6, port);
            (0..100u32).any(|number| {
                let due = delays.due(now + 50 * MS * number, &packet);
                due.at != due.steady
            })
        };
        assert!(varies(20_001));
        assert!(!varies(20_002) && !varies(7));
    }

    #[test]
    fn jitter_keeps_the_order_and_every_delay_s_mean() {
        let direction = Direction {
            jitter: 5 * MS,
            own: vec![Own::delayed(20_001, 30 * MS)],
            ..Direction::delayed(75 * MS)
        };
        let begin = Instant::now();
        for (port, delay) in [(20_001, 30.0), (7, 75.0)] {
            let mut delays = delays(&direction);
            let packet = ipv4(6, port);
            let mut last = None;
            let mut sum = 0.0;
            for number in 0..40_000 {
                let departure = begin + MS * number;
                let due = delays.due(departure, &packet);
                assert_eq!(due.steady, departure + Duration::from_millis(delay as u64));
                assert!(last.is_none_or(|last| last <= due.at));
                last = Some(due.at);
                sum += (due.at - departure).as_secs_f64() * 1e3;
            }
            // Of 890 independent values: a standard error of 0.17 ms, where a delay that only grew
            // would be 2 ms too long.
            let mean = sum / 40_000.0;
            assert!((mean - delay).abs() < 0.7, "{mean}");
        }
    }

    #[test]
    fn a_port_s_own_delay_holds_up_no_other_packets() {
        let mut direction = Direction::delayed(10 * MS);
        direction.own = vec![Own::delayed(20_001, 90 * MS)];
        let mut delays = delays(&direction);
        let now = Instant::now();
        let mut due = |frame: &[u8]| delays.due(now, frame).at - now;
        assert_eq!(due(&ipv4(6, 20_001)), 90 * MS);
        let mut from = ipv4(6, 7001);
        from[34..36].copy_from_slice(&20_001u16.to_be_bytes());
        assert_eq!(due(&from), 90 * MS);
        assert_eq!(due(&ipv4(6, 20_002)), 10 * MS);
        assert_eq!(due(&ipv4(1, 20_001)), 10 * MS);
        assert_eq!(due(&[0; 42]), 10 * MS);
    }

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
