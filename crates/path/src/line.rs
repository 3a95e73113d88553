//! One direction of a path, driven by the times it is given: rate, then loss, then delay.

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_pcg::Pcg64;

use crate::{
    Counts, Direction, PathConfig,
    disorder::{Turn, Turns},
    flight::Flight,
    link::Link,
    loss::Loss,
    punctuality::Punctuality,
};

pub(crate) struct Line {
    link: Link,
    loss: Loss,
    turns: Turns,
    delay: Duration,
    /// By how much longer what is held back takes.
    late: Duration,
    flight: Flight,
    held_back: Flight,
    counts: Counts,
    punctuality: Punctuality,
}

impl Line {
    /// The forward and the backward line of a valid configuration.
    pub fn pair(config: &PathConfig) -> [Self; 2] {
        let (forward, backward) = (&config.forward, &config.backward);
        let mut source = Pcg64::seed_from_u64(config.seed);
        let [to, fro] = Loss::pair(&mut source, forward.loss, backward.loss);
        [(forward, to), (backward, fro)].map(|(direction, loss)| {
            let turns = Turns::new(&mut source, direction.disorder);
            Self::new(direction, loss, turns)
        })
    }

    fn new(direction: &Direction, loss: Loss, turns: Turns) -> Self {
        Self {
            link: Link::new(direction.rate_bps, direction.queue_packets),
            loss,
            turns,
            delay: direction.delay,
            late: direction.disorder.unwrap_or_default().late,
            flight: Flight::new(),
            held_back: Flight::new(),
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
        let turn = self.turns.of(frame);
        let served = match self.flight.has_room(bytes) && self.held_back.has_room(bytes) {
            true => self.link.serve(now, bytes),
            false => None,
        };
        match served {
            None => self.counts.queue_full.add(bytes),
            Some(_) if lost => self.counts.lost.add(bytes),
            Some(departure) => self.carry(departure + self.delay, turn, frame),
        }
    }

    fn carry(&mut self, due: Instant, turn: Turn, frame: &[u8]) {
        let bytes = frame.len();
        if turn != Turn::HeldBack {
            self.counts.inside.add(bytes);
            self.flight.push(due, frame);
        }
        if turn != Turn::Kept {
            self.counts.inside.add(bytes);
            self.held_back.push(due + self.late, frame);
        }
        match turn {
            Turn::Kept => {}
            Turn::HeldBack => self.counts.held_back.add(bytes),
            Turn::Duplicated => self.counts.duplicated.add(bytes),
        }
    }

    /// When the next frame is due, if any is inside.
    pub fn due(&self) -> Option<Instant> {
        let due = |flight: &Flight| flight.next().map(|(due, _)| due);
        [&self.flight, &self.held_back]
            .into_iter()
            .filter_map(due)
            .min()
    }

    /// Hands the next frame, if it is due by `now`, in two parts to `write`, which tells whether the device
    /// took it. Returns whether a frame was due.
    pub fn depart(&mut self, now: Instant, write: impl FnOnce([&[u8]; 2]) -> bool) -> bool {
        let flight = sooner(&mut self.flight, &mut self.held_back);
        let Some((due, bytes)) = flight.next().filter(|(due, _)| *due <= now) else {
            return false;
        };
        if write(flight.front(bytes)) {
            self.counts.delivered.add(bytes);
            self.punctuality.record(now - due);
        } else {
            self.counts.device_refused.add(bytes);
        }
        self.counts.inside.remove(bytes);
        flight.pop();
        true
    }

    pub fn counts(&self) -> Counts {
        Counts {
            delay_error: self.punctuality.summary(),
            ..self.counts.clone()
        }
    }
}

/// The one whose next frame is due first.
fn sooner<'a>(one: &'a mut Flight, other: &'a mut Flight) -> &'a mut Flight {
    match (one.next(), other.next()) {
        (Some((due, _)), Some((others, _))) if others < due => other,
        (None, Some(_)) => other,
        _ => one,
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
