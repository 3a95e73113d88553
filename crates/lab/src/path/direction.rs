//! One direction of a path, driven by the times it is given: rate, then loss, then delay.

use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::path::delay::{Delays, Due, Variation};
use crate::path::ledger::Punctuality;
use crate::path::link::{DelayLine, Link};
use crate::path::loss::Losses;
use crate::path::packet::applies_to;
use crate::path::{Counts, Direction, Disorder, PathConfig};

pub(crate) struct LiveDirection {
    link: Link,
    losses: Losses,
    turns: Turns,
    delays: Delays,
    /// By how much longer than the delay a frame that is held back takes.
    late: Duration,
    delay_line: DelayLine,
    counts: Counts,
    punctuality: Punctuality,
    /// By how much delays vary; `None` where they do not.
    variation: Option<Variation>,
}

impl LiveDirection {
    /// The forward and the backward direction of a valid configuration.
    pub fn pair(config: &PathConfig) -> [Self; 2] {
        let ways = [&config.forward, &config.backward];
        let mut source = Pcg64::seed_from_u64(config.seed);
        // Every kind of chance has generators of its own, for both directions in turn: what is
        // lost then does not depend on what is disturbed.
        let [to, fro] = ways.map(|way| Losses::new(&mut source, way));
        let [turns_to, turns_fro] = ways.map(|way| Turns::new(&mut source, way.disorder));
        let [delays_to, delays_fro] = ways.map(|way| Delays::new(&mut source, way));
        [
            Self::new(&config.forward, to, turns_to, delays_to),
            Self::new(&config.backward, fro, turns_fro, delays_fro),
        ]
    }

    fn new(direction: &Direction, losses: Losses, turns: Turns, delays: Delays) -> Self {
        Self {
            link: Link::new(direction.rate_bps, direction.queue_packets),
            losses,
            turns,
            delays,
            late: direction.disorder.unwrap_or_default().late,
            delay_line: DelayLine::default(),
            counts: Counts::default(),
            punctuality: Punctuality::new(),
            variation: (!direction.jitter.is_zero()).then(Variation::default),
        }
    }

    /// Takes in a frame that the sending side's device has sent.
    pub fn arrive(&mut self, now: Instant, frame: &[u8]) {
        let bytes = frame.len();
        self.counts.received.add(bytes);
        // Drawn before the queue decides: a fate then depends on the frame's place in the
        // sequence alone, not on how full the queue was.
        let lost = self.losses.takes(frame);
        let turn = self.turns.of(frame);
        let copies = 1 + usize::from(turn == Turn::Duplicated);
        let served = match self.delay_line.has_room(copies, bytes) {
            true => self.link.serve(now, bytes),
            false => None,
        };
        match served {
            None => self.counts.queue_full.add(bytes),
            Some(_) if lost => self.counts.lost.add(bytes),
            Some(departure) => {
                let due = self.delays.due(departure, frame);
                self.carry(due, turn, frame);
            }
        }
    }

    fn carry(&mut self, due: Due, turn: Turn, frame: &[u8]) {
        let bytes = frame.len();
        if turn != Turn::HeldBack {
            self.counts.inside.add(bytes);
            self.delay_line.push(due, frame);
        }
        if turn != Turn::Kept {
            self.counts.inside.add(bytes);
            self.delay_line.push(due.later(self.late), frame);
        }
        match turn {
            Turn::Kept => {}
            Turn::HeldBack => self.counts.held_back.add(bytes),
            Turn::Duplicated => self.counts.duplicated.add(bytes),
        }
    }

    /// When the next frame is due, if any is inside.
    pub fn due(&self) -> Option<Instant> {
        self.delay_line.due()
    }

    /// Hands the next frame, if it is due by `now`, to `write`, which tells whether the device
    /// took it. Returns whether a frame was due.
    pub fn depart(&mut self, now: Instant, write: impl FnOnce(&[u8]) -> bool) -> bool {
        let Some((due, frame)) = self.delay_line.pop(now) else {
            return false;
        };
        if write(&frame) {
            self.counts.delivered.add(frame.len());
            self.punctuality.record(now - due.at);
            if let Some(variation) = &mut self.variation {
                variation.record(now, due.steady);
            }
        } else {
            self.counts.device_refused.add(frame.len());
        }
        self.counts.inside.remove(frame.len());
        true
    }

    pub fn counts(&self) -> Counts {
        Counts {
            delay_error: self.punctuality.summary(),
            jitter: self.variation.as_ref().map(Variation::summary),
            ..self.counts.clone()
        }
    }
}

// Packets out of their order, and packets that come twice, from a seed.

/// What happens to the order of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The packet stays where it is.
    Kept,
    /// The packet is held back, so that those behind overtake it.
    HeldBack,
    /// A copy of the packet follows, held back.
    Duplicated,
}

/// Draws the turns of the frames of one direction.
pub(crate) struct Turns {
    reorder: f64,
    duplicate: f64,
    generator: Pcg64,
}

impl Turns {
    /// The turns of a direction, with the next generator from `source`, for probabilities of 0 to 1
    /// that together do not exceed 1.
    pub fn new(source: &mut Pcg64, disorder: Option<Disorder>) -> Self {
        let Disorder {
            reorder, duplicate, ..
        } = disorder.unwrap_or_default();
        Self {
            reorder,
            duplicate,
            generator: Pcg64::from_rng(source),
        }
    }

    /// The turn of this frame, the next of the sequence.
    pub fn of(&mut self, frame: &[u8]) -> Turn {
        if self.reorder + self.duplicate == 0.0 || !applies_to(frame) {
            return Turn::Kept;
        }
        let drawn: f64 = self.generator.random();
        if drawn < self.reorder {
            Turn::HeldBack
        } else if drawn < self.reorder + self.duplicate {
            Turn::Duplicated
        } else {
            Turn::Kept
        }
    }
}

#[cfg(test)]
#[path = "direction_tests.rs"]
mod tests;
