//! One direction of a path, driven by the caller's clock: rate, then loss, then delay.

use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::path::delay::{Delays, DueTime, JitterMeter};
use crate::path::link::{DelayLine, Link, Transmission};
use crate::path::loss::Losses;
use crate::path::packet::is_impairable;
use crate::path::queue_log::QueueLog;
use crate::path::stats::DelayErrorHistogram;
use crate::path::{Direction, DirectionStats, Disorder, PathConfig};

pub(crate) struct DirectionState {
    link: Link,
    losses: Losses,
    decisions: OrderModel,
    delays: Delays,
    /// Additional delay of a reordered frame.
    late: Duration,
    delay_line: DelayLine,
    counts: DirectionStats,
    delay_errors: DelayErrorHistogram,
    /// Measured variation of delays; `None` without jitter.
    jitter_meter: Option<JitterMeter>,
    /// Log of the link's queue; `None` if it is not recorded.
    queue_log: Option<QueueLog>,
}

impl DirectionState {
    /// Creates the forward and the backward direction of a valid configuration.
    pub fn pair(config: &PathConfig) -> [Self; 2] {
        let ways = [&config.forward, &config.backward];
        let mut source = Pcg64::seed_from_u64(config.seed);
        // Each random process has its own generators, created for both directions in turn. So
        // losses do not depend on the disorder.
        let [to, fro] = ways.map(|way| Losses::new(&mut source, way));
        let [turns_to, turns_fro] = ways.map(|way| OrderModel::new(&mut source, way.disorder));
        let [delays_to, delays_fro] = ways.map(|way| Delays::new(&mut source, way));
        [
            Self::new(&config.forward, to, turns_to, delays_to),
            Self::new(&config.backward, fro, turns_fro, delays_fro),
        ]
    }

    fn new(direction: &Direction, losses: Losses, decisions: OrderModel, delays: Delays) -> Self {
        Self {
            link: Link::new(direction),
            losses,
            decisions,
            delays,
            late: direction.disorder.unwrap_or_default().late,
            delay_line: DelayLine::default(),
            counts: DirectionStats::default(),
            delay_errors: DelayErrorHistogram::new(),
            jitter_meter: (!direction.jitter.is_zero()).then(JitterMeter::default),
            queue_log: None,
        }
    }

    /// Starts a recorded link, unless it runs already.
    pub fn start_link(&mut self, now: Instant) {
        self.link.start(now);
    }

    /// Returns whether no packet waits for the link or is delayed, not even a packet that will be
    /// lost after the link.
    pub fn is_idle(&self, now: Instant) -> bool {
        self.counts.inside.packets == 0 && self.link.is_idle(now)
    }

    /// Starts or stops to log the packets of the link's queue.
    pub fn set_queue_log(&mut self, now: Instant, log: Option<QueueLog>) {
        if let Some(previous) = std::mem::replace(&mut self.queue_log, log) {
            previous.finish(now);
        }
    }

    /// Accepts a frame from the sending side's device.
    pub fn arrive(&mut self, now: Instant, frame: &[u8]) {
        let bytes = frame.len();
        self.counts.received.add(bytes);
        // Use the random numbers before the queue decides. Then a frame's disposition depends only
        // on its number, not on the queue length.
        let lost = self.losses.is_lost(now, frame);
        let decision = self.decisions.of(frame);
        let copies = 1 + usize::from(decision == OrderDecision::Duplicated);
        if !self.delay_line.has_room(copies, bytes) {
            self.counts.overflowed.add(bytes);
            return;
        }
        let served = self.link.serve(now, bytes);
        if let Some(log) = &mut self.queue_log {
            log.arrive(now, frame, served.map(|it| it.start));
        }
        match served {
            None => self.counts.queue_full.add(bytes),
            Some(_) if lost => self.counts.lost.add(bytes),
            Some(Transmission { departure, .. }) => {
                let due = self.delays.due(departure, frame);
                self.enqueue(due, decision, frame);
            }
        }
    }

    fn enqueue(&mut self, due: DueTime, decision: OrderDecision, frame: &[u8]) {
        let bytes = frame.len();
        if decision != OrderDecision::Delayed {
            self.counts.inside.add(bytes);
            self.delay_line.push(due, frame);
        }
        if decision != OrderDecision::InOrder {
            self.counts.inside.add(bytes);
            self.delay_line.push(due.later(self.late), frame);
        }
        match decision {
            OrderDecision::InOrder => {}
            OrderDecision::Delayed => self.counts.reordered.add(bytes),
            OrderDecision::Duplicated => self.counts.duplicated.add(bytes),
        }
    }

    /// Returns the due time of the next frame, if any.
    pub fn due(&self) -> Option<Instant> {
        self.delay_line.due()
    }

    /// Passes the next frame, if it is due by `now`, to `write`, which returns whether the device
    /// accepted it. Returns whether a frame was due.
    pub fn depart(&mut self, now: Instant, write: impl FnOnce(&[u8]) -> bool) -> bool {
        let Some((due, frame)) = self.delay_line.pop(now) else {
            return false;
        };
        if write(&frame) {
            self.counts.delivered.add(frame.len());
            self.delay_errors.record(now - due.at);
            if let Some(jitter_meter) = &mut self.jitter_meter {
                jitter_meter.record(now, due.without_jitter);
            }
        } else {
            self.counts.device_refused.add(frame.len());
        }
        self.counts.inside.remove(frame.len());
        true
    }

    pub fn counts(&self) -> DirectionStats {
        DirectionStats {
            delay_error: self.delay_errors.summary(),
            jitter: self.jitter_meter.as_ref().map(JitterMeter::summary),
            ..self.counts.clone()
        }
    }
}

// Reordering and duplication of packets, from a seed.

/// Effect on the order of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderDecision {
    /// The packet stays in order.
    InOrder,
    /// The packet is delayed, and later ones overtake it.
    Delayed,
    /// A delayed copy of the packet follows.
    Duplicated,
}

/// Decides on reordering and duplication of one direction's frames.
pub(crate) struct OrderModel {
    reorder: f64,
    duplicate: f64,
    generator: Pcg64,
}

impl OrderModel {
    /// Creates the model of a direction, with the next generator from `source`. The probabilities
    /// are 0 to 1, and their sum is at most 1.
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

    /// Returns the decision for this frame, the next of the sequence.
    pub fn of(&mut self, frame: &[u8]) -> OrderDecision {
        if self.reorder + self.duplicate == 0.0 || !is_impairable(frame) {
            return OrderDecision::InOrder;
        }
        let random: f64 = self.generator.random();
        if random < self.reorder {
            OrderDecision::Delayed
        } else if random < self.reorder + self.duplicate {
            OrderDecision::Duplicated
        } else {
            OrderDecision::InOrder
        }
    }
}

#[cfg(test)]
#[path = "direction_tests.rs"]
mod tests;
