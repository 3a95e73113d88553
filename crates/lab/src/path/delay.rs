//! Due times of packets after the link: delay, jitter, and delays of single ports.

use std::f64::consts::FRAC_PI_2;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_pcg::Pcg64;

use crate::path::config::MAX_DEVIATIONS;
use crate::path::packet::ByPort;
use crate::path::{Direction, JitterStats};

/// The delays of the frames of one direction.
pub(crate) struct Delays {
    common: Delay,
    own: ByPort<PortDelay>,
    jitter: Option<Jitter>,
}

/// The delay of a port, and its own jitter if it has one.
struct PortDelay {
    delay: Delay,
    jitter: Option<Option<Jitter>>,
}

/// A delay, and the due time of the last packet with it. No later packet overtakes that one, not
/// even by rounding to nanoseconds.
struct Delay {
    time: Duration,
    last: Option<Instant>,
}

/// Due time of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DueTime {
    pub at: Instant,
    /// Due time without jitter.
    pub without_jitter: Instant,
}

impl Delays {
    /// Creates the delays of a direction, with the next generators from `source`: one for all
    /// packets, and one for each port with its own jitter.
    pub fn new(source: &mut Pcg64, direction: &Direction) -> Self {
        let jitter = Jitter::new(source, direction.jitter);
        let own = direction.own.iter().map(|own| {
            let jitter = own.jitter.map(|sd| Jitter::new(source, sd));
            let delay = Delay::of(own.delay);
            (own.port, PortDelay { delay, jitter })
        });
        Self {
            common: Delay::of(direction.delay),
            own: own.collect(),
            jitter,
        }
    }

    /// Returns the due time of a frame that has left the link; frames come in order.
    pub fn due(&mut self, departure: Instant, frame: &[u8]) -> DueTime {
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
        DueTime {
            at,
            without_jitter: departure + delay.time,
        }
    }
}

impl Delay {
    fn of(time: Duration) -> Self {
        Self { time, last: None }
    }
}

impl DueTime {
    /// Returns the due time delayed by `by`.
    pub fn later(self, by: Duration) -> Self {
        Self {
            at: self.at + by,
            without_jitter: self.without_jitter + by,
        }
    }
}

// Variation of a direction's delay with time.

/// Time between two independent values, in standard deviations. Between two values at the limit,
/// the delay falls by at most π/2 · √2 · `MAX_DEVIATIONS` = 8.9 in this time. That is less than one
/// second per second, so no packet overtakes another.
const INTERVAL_DEVIATIONS: f64 = 9.0;

/// A stationary process with mean 0. It has independent normal values at equal intervals of time.
/// Between two neighbours `a` and `b`, the value is a cos φ + b sin φ, and φ grows from 0 to π/2.
/// Because cos² + sin² = 1, it has the same normal distribution at every time.
pub(crate) struct Jitter {
    /// Standard deviation, in seconds; not 0.
    sd: f64,
    /// Position of the first packet in its interval, 0 to 1.
    phase: f64,
    generator: Pcg64,
    interval: Option<Interval>,
}

/// The time between two neighbouring independent values.
struct Interval {
    /// Time of the first packet.
    origin: Instant,
    /// Number of earlier intervals.
    number: u64,
    /// The values at both ends, in standard deviations.
    ends: [f64; 2],
}

impl Jitter {
    /// Creates jitter with this standard deviation and the next generator from `source`. Returns
    /// `None` if the deviation is 0.
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

    /// Returns the additional delay of a packet, in seconds. `now` must not decrease.
    pub fn at(&mut self, now: Instant) -> f64 {
        let origin = self.interval.as_ref().map_or(now, |it| it.origin);
        let intervals = (now - origin).as_secs_f64() / (INTERVAL_DEVIATIONS * self.sd) + self.phase;
        let number = intervals as u64;
        let ends = match &self.interval {
            Some(same) if same.number == number => same.ends,
            Some(last) if last.number + 1 == number => [last.ends[1], self.sample()],
            _ => [self.sample(), self.sample()],
        };
        self.interval = Some(Interval {
            origin,
            number,
            ends,
        });
        let (sin, cos) = (intervals.fract() * FRAC_PI_2).sin_cos();
        clamp_deviations(ends[0] * cos + ends[1] * sin) * self.sd
    }

    fn sample(&mut self) -> f64 {
        clamp_deviations(self.generator.sample(StandardNormal))
    }
}

fn clamp_deviations(deviations: f64) -> f64 {
    let farthest = f64::from(MAX_DEVIATIONS);
    deviations.clamp(-farthest, farthest)
}

// Mean and deviation of the delays that frames had.

/// Measures how far delays differ from the configured ones, by Welford's algorithm (Technometrics
/// 4(3), 1962). It stays exact if the deviation is small against the mean.
#[derive(Default)]
pub(crate) struct JitterMeter {
    count: f64,
    mean_us: f64,
    /// Sum of the squared distances from the mean.
    squares: f64,
}

impl JitterMeter {
    /// Records a departure and its due time without jitter.
    pub fn record(&mut self, departure: Instant, without_jitter: Instant) {
        let later = departure
            .saturating_duration_since(without_jitter)
            .as_secs_f64();
        let earlier = without_jitter
            .saturating_duration_since(departure)
            .as_secs_f64();
        let us = (later - earlier) * 1e6;
        self.count += 1.0;
        let distance = us - self.mean_us;
        self.mean_us += distance / self.count;
        self.squares += distance * (us - self.mean_us);
    }

    pub fn summary(&self) -> JitterStats {
        JitterStats {
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
    use crate::path::PortOverride;
    use crate::path::packet::tests::ipv4;

    const MS: Duration = Duration::from_millis(1);

    fn delays(direction: &Direction) -> Delays {
        Delays::new(&mut Pcg64::seed_from_u64(1), direction)
    }

    #[test]
    fn port_jitter_is_independent() {
        let own = PortOverride {
            jitter: Some(5 * MS),
            ..PortOverride::delayed(20_001, 30 * MS)
        };
        let direction = Direction {
            own: vec![own, PortOverride::delayed(20_002, 30 * MS)],
            ..Direction::delayed(75 * MS)
        };
        let mut delays = delays(&direction);
        let now = Instant::now();
        let mut varies = |port| {
            let packet = ipv4(6, port);
            (0..100u32).any(|number| {
                let due = delays.due(now + 50 * MS * number, &packet);
                due.at != due.without_jitter
            })
        };
        assert!(varies(20_001));
        assert!(!varies(20_002) && !varies(7));
    }

    #[test]
    fn jitter_keeps_order_and_mean_delay() {
        let direction = Direction {
            jitter: 5 * MS,
            own: vec![PortOverride::delayed(20_001, 30 * MS)],
            ..Direction::delayed(75 * MS)
        };
        let start = Instant::now();
        for (port, delay) in [(20_001, 30.0), (7, 75.0)] {
            let mut delays = delays(&direction);
            let packet = ipv4(6, port);
            let mut last = None;
            let mut sum = 0.0;
            for number in 0..40_000 {
                let departure = start + MS * number;
                let due = delays.due(departure, &packet);
                assert_eq!(
                    due.without_jitter,
                    departure + Duration::from_millis(delay as u64)
                );
                assert!(last.is_none_or(|last| last <= due.at));
                last = Some(due.at);
                sum += (due.at - departure).as_secs_f64() * 1e3;
            }
            // 890 independent values have a standard error of 0.17 ms. A delay that only grew would
            // be 2 ms too long.
            let mean = sum / 40_000.0;
            assert!((mean - delay).abs() < 0.7, "{mean}");
        }
    }

    #[test]
    fn port_delay_does_not_delay_other_packets() {
        let mut direction = Direction::delayed(10 * MS);
        direction.own = vec![PortOverride::delayed(20_001, 90 * MS)];
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

    /// Returns jitter values at this spacing, in standard deviations of 5 ms.
    fn values(seed: u64, spacing: Duration) -> Vec<f64> {
        let mut jitter = Jitter::new(&mut Pcg64::seed_from_u64(seed), 5 * MS).unwrap();
        let start = Instant::now();
        let times = (0..40_000).map(|number| start + spacing * number);
        times.map(|time| jitter.at(time) / 5e-3).collect()
    }

    fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
        let count = values.len() as f64;
        values.sum::<f64>() / count
    }

    #[test]
    fn jitter_statistics_do_not_depend_on_packet_rate() {
        // 890, 8,900, 40,000 and 40,000 independent values: an interval takes 45 ms.
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
    fn jitter_is_normally_distributed() {
        let values = values(1, 91 * MS);
        for (threshold, expected) in [(0.0, 0.5), (1.0, 0.158_7), (2.0, 0.022_75)] {
            let share = mean(values.iter().map(|it| f64::from(u8::from(*it > threshold))));
            assert!((share - expected).abs() < 0.012, "{threshold}: {share}");
        }
        assert!(
            values
                .iter()
                .all(|it| it.abs() <= f64::from(MAX_DEVIATIONS))
        );
    }

    #[test]
    fn jitter_never_reorders_packets() {
        let values = values(1, MS / 5);
        let steepest_fall = values.windows(2).map(|two| two[1] - two[0]);
        let steepest_fall = steepest_fall.fold(0.0, f64::min) * 5.0;
        assert!(
            (-0.2..-0.05).contains(&steepest_fall),
            "{steepest_fall} ms in 0.2 ms"
        );
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
    fn jitter_correlates_only_over_short_times() {
        let values = values(1, MS);
        let product = |ms| mean((0..values.len() - ms).map(|at| values[at] * values[at + ms]));
        let variance = product(0);
        let [near, far] = [2, 90].map(|ms| product(ms) / variance);
        assert!(near > 0.98 && far.abs() < 0.2, "{near} {far}");
    }

    #[test]
    fn same_seed_gives_same_jitter() {
        assert_eq!(values(1, MS), values(1, MS));
        assert_ne!(values(1, MS), values(2, MS));
    }

    #[test]
    fn jitter_meter_measures_differences() {
        let mut jitter_meter = JitterMeter::default();
        assert_eq!(jitter_meter.summary(), JitterStats::default());
        let us = Duration::from_micros;
        let without_jitter = Instant::now() + us(1_000);
        for departure in [
            without_jitter - us(70),
            without_jitter + us(10),
            without_jitter - us(30),
        ] {
            jitter_meter.record(departure, without_jitter);
        }
        let (mean_us, sd_us) = (-30, 33);
        assert_eq!(jitter_meter.summary(), JitterStats { mean_us, sd_us });
    }
}
