//! One direction of a path: what becomes of each packet.

use std::time::{Duration, Instant};

use rand::{Rng, RngExt};

#[derive(Debug, Clone)]
pub struct Direction {
    /// Share of the packets that are lost on a good path, and on a bad one.
    pub loss: [f64; 2],
    /// Probability per packet that the path changes: from good to bad, and back.
    pub changes: [f64; 2],
    /// Share of the packets that come twice.
    pub doubles: f64,
    pub delay: Duration,
    /// By how much longer a packet may take at most; the next one may overtake it.
    pub jitter: Duration,
    /// Payload in bytes of the largest packets that do not vanish.
    pub largest: usize,
    pub is_bad: bool,
}

impl Direction {
    /// When a packet arrives, once or twice or never.
    pub fn carry(&mut self, random: &mut impl Rng, bytes: usize, now: Instant) -> Vec<Instant> {
        let state = usize::from(self.is_bad);
        if random.random_bool(self.changes[state]) {
            self.is_bad = !self.is_bad;
        }
        let lost = random.random_bool(self.loss[usize::from(self.is_bad)]);
        let doubled = random.random_bool(self.doubles);
        let mut arrivals = Vec::new();
        for _ in 0..=usize::from(doubled) {
            let late = random.random_range(0.0..=1.0);
            arrivals.push(now + self.delay + self.jitter.mul_f64(late));
        }
        if lost || bytes > self.largest {
            arrivals.clear();
        }
        arrivals
    }
}
