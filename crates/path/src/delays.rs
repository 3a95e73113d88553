//! When packets are due behind the link: delay, jitter, and delays of single ports.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use rand_pcg::Pcg64;

use crate::{Direction, jitter::Jitter, packet::ports};

/// The delays of the frames of one direction.
pub(crate) struct Delays {
    common: Delay,
    own: HashMap<u16, Delay>,
    jitter: Option<Jitter>,
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
    /// The delays of a direction, with the next generator from `source`.
    pub fn new(source: &mut Pcg64, direction: &Direction) -> Self {
        let delay = |time| Delay { time, last: None };
        let own = direction.own_delays.iter();
        Self {
            common: delay(direction.delay),
            own: own.map(|own| (own.port, delay(own.delay))).collect(),
            jitter: Jitter::new(source, direction.jitter),
        }
    }

    /// When a frame that has left the link, after those before it, is due.
    pub fn due(&mut self, departure: Instant, frame: &[u8]) -> Due {
        let deviation = self.jitter.as_mut().map_or(0.0, |it| it.at(departure));
        let own = match self.own.is_empty() {
            true => None,
            false => {
                let ports = ports(frame).unwrap_or_default();
                let known = ports.iter().rev().find(|port| self.own.contains_key(port));
                known.and_then(|port| self.own.get_mut(port))
            }
        };
        let delay = own.unwrap_or(&mut self.common);
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

impl Due {
    /// The frame's time, so much later.
    pub fn later(self, by: Duration) -> Self {
        Self {
            at: self.at + by,
            steady: self.steady + by,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::{OwnDelay, packet::tests::ipv4};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn jitter_keeps_the_order_and_every_delay_s_mean() {
        let direction = Direction {
            jitter: 5 * MS,
            own_delays: vec![OwnDelay {
                port: 20_001,
                delay: 30 * MS,
            }],
            ..Direction::delayed(75 * MS)
        };
        let begin = Instant::now();
        for (port, delay) in [(20_001, 30.0), (7, 75.0)] {
            let mut delays = Delays::new(&mut Pcg64::seed_from_u64(1), &direction);
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
        direction.own_delays = vec![OwnDelay {
            port: 20_001,
            delay: 90 * MS,
        }];
        let mut delays = Delays::new(&mut Pcg64::seed_from_u64(1), &direction);
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
}
