//! When packets are due behind the link: delay, jitter, and delays of single ports.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_pcg::Pcg64;

use crate::{
    Direction,
    packet::{applies_to, destination_port},
};

/// Standard deviations beyond which jitter does not go, as in netem's table.
const FARTHEST: f64 = 4.0;

/// Draws the delays of the frames of one direction.
pub(crate) struct Delays {
    common: Delay,
    own: HashMap<u16, Delay>,
    /// Standard deviation of the delay, in seconds.
    jitter: f64,
    generator: Pcg64,
}

/// A delay, and when the last packet that has it is due: none behind it overtakes it.
struct Delay {
    time: Duration,
    last: Option<Instant>,
}

impl Delays {
    /// The delays of a direction, with the next generator from `source`.
    pub fn new(source: &mut Pcg64, direction: &Direction) -> Self {
        let delay = |time| Delay { time, last: None };
        let own = direction.own_delays.iter();
        Self {
            common: delay(direction.delay),
            own: own.map(|own| (own.port, delay(own.delay))).collect(),
            jitter: direction.jitter.as_secs_f64(),
            generator: Pcg64::from_rng(source),
        }
    }

    /// By how much this frame, the next of the sequence, misses its delay, in seconds.
    pub fn deviation(&mut self, frame: &[u8]) -> f64 {
        if self.jitter == 0.0 || !applies_to(frame) {
            return 0.0;
        }
        let drawn: f64 = self.generator.sample(StandardNormal);
        drawn.clamp(-FARTHEST, FARTHEST) * self.jitter
    }

    /// When a frame that has left the link is due.
    pub fn due(&mut self, departure: Instant, deviation: f64, frame: &[u8]) -> Instant {
        let own = match self.own.is_empty() {
            true => None,
            false => destination_port(frame).and_then(|port| self.own.get_mut(&port)),
        };
        let delay = own.unwrap_or(&mut self.common);
        let size = Duration::from_secs_f64(deviation.abs());
        let time = match deviation < 0.0 {
            true => delay.time.saturating_sub(size),
            false => delay.time + size,
        };
        let due = departure + time;
        let due = delay.last.map_or(due, |last| last.max(due));
        delay.last = Some(due);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OwnDelay, packet::tests::ipv4};

    const MS: Duration = Duration::from_millis(1);

    fn direction(delay: Duration, jitter: Duration) -> Direction {
        Direction {
            jitter,
            ..Direction::delayed(delay)
        }
    }

    /// The delays of packets that come so far apart, in milliseconds.
    fn drawn(seed: u64, direction: &Direction, spacing: Duration) -> Vec<f64> {
        let mut delays = Delays::new(&mut Pcg64::seed_from_u64(seed), direction);
        let begin = Instant::now();
        let packet = ipv4(6, 7);
        let delay = |number| {
            let departure = begin + spacing * number;
            let deviation = delays.deviation(&packet);
            let due = delays.due(departure, deviation, &packet);
            (due - departure).as_secs_f64() * 1e3
        };
        (0..20_000).map(delay).collect()
    }

    #[test]
    fn jitter_is_normal_with_the_deviation_asked_for() {
        let delays = drawn(1, &direction(75 * MS, 5 * MS), 100 * MS);
        let count = delays.len() as f64;
        let mean = delays.iter().sum::<f64>() / count;
        let variance = delays.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / count;
        // Standard errors: 0.035 and 0.025 ms.
        assert!((mean - 75.0).abs() < 0.25, "{mean}");
        assert!((variance.sqrt() - 5.0).abs() < 0.2, "{}", variance.sqrt());
        let within = delays.iter().filter(|it| (*it - 75.0).abs() < 5.0).count();
        // 13,654 expected, standard deviation 66.
        assert!((13_100..14_200).contains(&within), "{within}");
        assert!(delays.iter().all(|it| (54.9..95.1).contains(it)));
    }

    #[test]
    fn jitter_keeps_the_order() {
        let delays = drawn(1, &direction(75 * MS, 5 * MS), MS);
        let arrivals: Vec<f64> = (0..)
            .map(f64::from)
            .zip(&delays)
            .map(|(n, it)| n + it)
            .collect();
        assert!(arrivals.windows(2).all(|two| two[0] - 1e-6 <= two[1]));
        assert!(delays.iter().any(|it| *it > 80.0));
    }

    #[test]
    fn jitter_never_lets_a_packet_arrive_before_it_came() {
        let delays = drawn(1, &direction(MS, 5 * MS), 100 * MS);
        assert!(delays.contains(&0.0));
    }

    #[test]
    fn the_same_seed_draws_the_same_delays() {
        let direction = direction(75 * MS, 5 * MS);
        assert_eq!(drawn(1, &direction, MS), drawn(1, &direction, MS));
        assert_ne!(drawn(1, &direction, MS), drawn(2, &direction, MS));
    }

    #[test]
    fn a_port_s_own_delay_holds_up_no_other_packets() {
        let mut direction = direction(10 * MS, Duration::ZERO);
        direction.own_delays = vec![OwnDelay {
            port: 20_001,
            delay: 90 * MS,
        }];
        let mut delays = Delays::new(&mut Pcg64::seed_from_u64(1), &direction);
        let now = Instant::now();
        let mut due = |frame: &[u8]| delays.due(now, 0.0, frame) - now;
        assert_eq!(due(&ipv4(6, 20_001)), 90 * MS);
        assert_eq!(due(&ipv4(6, 20_002)), 10 * MS);
        assert_eq!(due(&ipv4(1, 20_001)), 10 * MS);
        assert_eq!(due(&[0; 42]), 10 * MS);
    }
}
