//! Delay and loss of a path while nothing is added.

use std::time::Duration;

use super::load::Load;

/// The longest queue that was seen while nothing was added.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usual(Duration);

impl Usual {
    /// Each decision subtracts 1/FADE while the queue is shorter than half of the stored one. That
    /// halves it in 240 decisions (a minute).
    const FADE: u32 = 346;

    pub(super) fn queue(&self) -> Duration {
        self.0
    }

    /// A queue that was seen while nothing was added.
    pub(super) fn raise(&mut self, queue: Duration) {
        self.0 = self.0.max(queue);
    }

    /// The longest queue while the path was measured by itself.
    pub(super) fn measured(&mut self, longest: Duration) {
        self.0 = longest;
    }

    pub(super) fn fade(&mut self, queue: Duration) {
        if queue < self.0 / 2 {
            self.0 -= self.0 / Self::FADE;
        }
    }
}

/// Losses: a CUSUM over windows of 50 packets against the loss rate seen while nothing was added.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Losses {
    /// While nothing, or hardly anything, was added; fading.
    alone: Counts,
    /// Since the phase started.
    phase: Counts,
    window: Counts,
    /// Losses beyond what is expected, and what was counted since there were none.
    excess: f64,
    run: Counts,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    packets: f64,
    losses: f64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.losses += other.losses;
    }
}

impl Losses {
    const WINDOW: f64 = 50.0;
    /// Losses in excess that make an alarm.
    const ALARM: f64 = 10.0;
    /// Minimum packets for [`Losses::are_known`]; the reference needs only a window.
    const KNOWN: f64 = 100.0;
    /// Packets after which a measurement of losses is good enough.
    const WELL_KNOWN: f64 = 600.0;
    /// Packets above which the counts are halved.
    const FADE: f64 = 2000.0;
    /// The loss rate that is taken for the path's own while nothing is known of it.
    const UNKNOWN: f64 = 0.1;

    /// Adds what was measured; `alone` if hardly anything was added meanwhile.
    pub(super) fn add(&mut self, load: &Load, alone: bool) {
        let counts = Counts {
            packets: load.packets as f64,
            losses: load.losses as f64,
        };
        self.phase.add(counts);
        self.window.add(counts);
        if self.window.packets >= Self::WINDOW {
            let window = std::mem::take(&mut self.window);
            let expected = window.packets * self.reference();
            self.excess = (self.excess + window.losses - expected).max(0.0);
            self.run.add(window);
            if self.excess <= 0.0 {
                self.run = Counts::default();
            }
        }
        if alone {
            self.alone.add(counts);
            if self.alone.packets > Self::FADE {
                self.alone.packets /= 2.0;
                self.alone.losses /= 2.0;
            }
        }
    }

    /// The loss rate that makes no excess: the highest that the path may well have by itself, and half
    /// of that more, so that chance makes no alarm.
    fn reference(&self) -> f64 {
        let Counts { packets, losses } = self.alone;
        if packets < Self::WINDOW {
            return Self::UNKNOWN;
        }
        let highest = 2.0f64.mul_add((losses + 1.0).sqrt(), losses + 2.0) / packets;
        highest * 1.5
    }

    /// More is lost than the path loses by itself.
    pub(super) fn is_alarming(&self) -> bool {
        self.excess >= Self::ALARM
    }

    /// Fewer losses than make an alarm, but more than are expected.
    pub(super) fn are_suspicious(&self) -> bool {
        let Counts { packets, losses } = self.phase;
        match self.are_known() {
            true => self.excess >= Self::ALARM / 4.0,
            false => losses >= 3.0 && losses * 100.0 >= packets,
        }
    }

    /// The loss rate of the alarm.
    pub(super) fn alarming_rate(&self) -> f64 {
        self.run.losses / self.run.packets.max(1.0)
    }

    /// True if this phase lost clearly less than at the rate of the alarm.
    pub(super) fn have_gone(&self, alarming_rate: f64) -> bool {
        let expected = alarming_rate * self.phase.packets;
        expected - self.phase.losses > 2.0f64.mul_add(expected.sqrt(), 1.0)
    }

    /// True if a hundredth or more is lost and it is not known what the path loses by itself.
    pub(super) fn are_unexplained(&self) -> bool {
        let Counts { packets, losses } = self.phase;
        !self.are_known() && losses >= 10.0 && losses * 100.0 >= packets
    }

    /// True if enough was seen alone to know what the path loses by itself.
    pub(super) fn are_known(&self) -> bool {
        self.alone.packets >= Self::KNOWN
    }

    /// Loss rate of this phase.
    pub(super) fn rate(&self) -> f64 {
        self.phase.losses / self.phase.packets.max(1.0)
    }

    /// True if a measurement of the path by itself can end: it has enough packets, or it shows that the
    /// path causes at least half of this loss rate.
    pub(super) fn are_measured(&self, rate: f64) -> bool {
        let Counts { packets, losses } = self.alone;
        packets >= Self::WELL_KNOWN || self.are_known() && losses >= packets * rate / 2.0
    }

    /// A phase starts: the excess of the last one does not count.
    pub(super) fn restart(&mut self) {
        self.phase = Counts::default();
        self.window = Counts::default();
        self.run = Counts::default();
        self.excess = 0.0;
    }

    /// Takes the losses of this phase for the path's own.
    pub(super) fn learn(&mut self) {
        if self.phase.packets >= Self::WINDOW {
            self.alone = self.phase;
        }
    }
}
