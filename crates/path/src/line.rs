//! One direction of a path, driven by the times it is given: rate, then loss, then delay.

use std::time::{Duration, Instant};

use crate::{
    Counts, Direction, PathConfig, flight::Flight, link::Link, loss::Loss, punctuality::Punctuality,
};

pub(crate) struct Line {
    link: Link,
    loss: Loss,
    delay: Duration,
    flight: Flight,
    counts: Counts,
    punctuality: Punctuality,
}

impl Line {
    /// The forward and the backward line of a valid configuration.
    pub fn pair(config: &PathConfig) -> [Self; 2] {
        let (forward, backward) = (&config.forward, &config.backward);
        let [to, fro] = Loss::pair(config.seed, forward.loss, backward.loss);
        [Self::new(forward, to), Self::new(backward, fro)]
    }

    fn new(direction: &Direction, loss: Loss) -> Self {
        Self {
            link: Link::new(direction.rate_bps, direction.queue_packets),
            loss,
            delay: direction.delay,
            flight: Flight::new(),
            counts: Counts::default(),
            punctuality: Punctuality::new(),
        }
    }

    /// Takes in a frame.
    pub fn arrive(&mut self, now: Instant, frame: &[u8]) {
        let bytes = frame.len();
        self.counts.received.add(bytes);
        // Drawn before the queue decides: a fate then depends on the frame's place in the
        // sequence alone, not on how full the queue was.
        let lost = self.loss.takes(frame);
        let served = match self.flight.has_room(bytes) {
            true => self.link.serve(now, bytes),
            false => None,
        };
        match served {
            None => self.counts.queue_full.add(bytes),
            Some(_) if lost => self.counts.lost.add(bytes),
            Some(departure) => {
                self.counts.inside.add(bytes);
                self.flight.push(departure + self.delay, frame);
            }
        }
    }

    /// When the next frame is due, if any is inside.
    pub fn due(&self) -> Option<Instant> {
        self.flight.next().map(|(due, _)| due)
    }

    /// Hands the next frame, if it is due by `now`, in two parts to `write`, which tells whether the device
    /// took it. Returns whether a frame was due.
    pub fn depart(&mut self, now: Instant, write: impl FnOnce([&[u8]; 2]) -> bool) -> bool {
        let Some((due, bytes)) = self.flight.next().filter(|(due, _)| *due <= now) else {
            return false;
        };
        if write(self.flight.front(bytes)) {
            self.counts.delivered.add(bytes);
            self.punctuality.record(now - due);
        } else {
            self.counts.device_refused.add(bytes);
        }
        self.counts.inside.remove(bytes);
        self.flight.pop();
        true
    }

    pub fn counts(&self) -> Counts {
        Counts {
            delay_error: self.punctuality.summary(),
            ..self.counts.clone()
        }
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
