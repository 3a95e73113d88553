//! Measurements of the connections to one peer network during one interval, and delay and loss of its
//! path while nothing is added.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::contract::types;

/// The first power of two, in microseconds, and the steps for each power.
const FIRST_BIT: u32 = types::queue_scale::QUEUE_FIRST_BIT.0;
const STEP_BITS: u32 = types::queue_scale::QUEUE_STEP_BITS.0;

/// Measurements of the connections to one peer network since the last decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Load {
    /// Median over the connections of the least queueing delay: RTT less the connection's minimum.
    pub(crate) queue: Duration,
    /// Mean time between two packets with data of one connection.
    pub(crate) itt: Duration,
    /// Mean smoothed RTT.
    pub(crate) rtt: Duration,
    /// Mean duration of the windows that were measured.
    pub(crate) window: Duration,
    /// Packets with data.
    pub(crate) packets: u64,
    /// Small new segments, without copies and retransmissions.
    pub(crate) messages: u64,
    /// Losses that redundancy repaired, and retransmissions, less reordered segments.
    pub(crate) losses: u64,
    /// Of these, retransmissions.
    pub(crate) retransmitted: u64,
    /// True if redundant bytes were sent.
    pub(crate) is_redundant: bool,
}

impl Load {
    /// Converts the kernel's sums; `None` if no connection reported any.
    pub(crate) fn from_raw(raw: &types::network_load) -> Option<Self> {
        let mean = |sum: u64, count| sum.checked_div(count).map(Duration::from_micros);
        Some(Self {
            queue: median(&raw.queue)?,
            itt: mean(raw.window_us, raw.packets).unwrap_or_default(),
            rtt: mean(raw.srtt_us, raw.windows)?,
            window: mean(raw.window_us, raw.windows)?,
            packets: raw.packets,
            messages: raw.messages,
            losses: raw.losses,
            retransmitted: raw.retransmitted,
            is_redundant: raw.redundant_bytes > 0,
        })
    }
}

/// The middle of the bucket that has the median; `None` if all are empty.
fn median(buckets: &[u32]) -> Option<Duration> {
    let total: u64 = buckets.iter().map(|count| u64::from(*count)).sum();
    let mut before = 0;
    let bucket = buckets.iter().position(|count| {
        before += u64::from(*count);
        total > 0 && 2 * before >= total
    })?;
    Some(Duration::from_micros(
        (lower(bucket) + lower(bucket + 1)) / 2,
    ))
}

/// The least delay of a bucket in microseconds.
fn lower(bucket: usize) -> u64 {
    let Some(step) = bucket.checked_sub(1) else {
        return 0;
    };
    let steps = 1 << STEP_BITS;
    let (octave, step) = (step >> STEP_BITS, (step % steps) as u64);
    (steps as u64 + step) << (octave as u32 + FIRST_BIT - STEP_BITS)
}

/// The longest queue that was seen while nothing was added.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Baseline(Duration);

impl Baseline {
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

/// Losses: a CUSUM over windows of 50 packets against the loss rate seen while nothing was added. Its
/// thresholds grow with the dispersion of the path's own losses, because bursts vary more.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LossMonitor {
    /// At a share of at most 1/8, or during a measurement; fading.
    baseline: Counts,
    /// Since the phase started.
    phase: Counts,
    /// Losses of the phase that were retransmitted.
    retransmitted: f64,
    window: Counts,
    /// Losses above the expected number, and the counts since it was last zero.
    excess: f64,
    run: Counts,
}

/// Packets and losses.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    decisions: f64,
    packets: f64,
    losses: f64,
    /// Sums over decisions.
    packets_squared: f64,
    losses_squared: f64,
}

impl Counts {
    /// Bounds of the index of dispersion: independent losses, and bursts of about five packets.
    const DISPERSION: RangeInclusive<f64> = 1.0..=8.0;
    /// Fewer losses do not show their dispersion.
    const MIN_LOSSES: f64 = 20.0;

    /// The counts of a decision.
    fn of(load: &Load) -> Self {
        let (packets, losses) = (load.packets as f64, load.losses as f64);
        Self {
            decisions: 1.0,
            packets,
            losses,
            packets_squared: packets * packets,
            losses_squared: losses * losses,
        }
    }

    fn add(&mut self, other: Self) {
        self.decisions += other.decisions;
        self.packets += other.packets;
        self.losses += other.losses;
        self.packets_squared += other.packets_squared;
        self.losses_squared += other.losses_squared;
    }

    fn halved(self) -> Self {
        Self {
            decisions: self.decisions / 2.0,
            packets: self.packets / 2.0,
            losses: self.losses / 2.0,
            packets_squared: self.packets_squared / 2.0,
            losses_squared: self.losses_squared / 2.0,
        }
    }

    /// Loss rate.
    fn rate(&self) -> f64 {
        self.losses / self.packets.max(1.0)
    }

    /// Index of dispersion: the variance of a decision's losses, relative to that of independent losses.
    fn dispersion(&self) -> f64 {
        if self.losses < Self::MIN_LOSSES {
            return 1.0;
        }
        let rate = self.rate();
        let variance = (rate * rate).mul_add(-self.packets_squared, self.losses_squared);
        let index = variance / (self.losses * (1.0 - rate)).max(1.0);
        index.clamp(*Self::DISPERSION.start(), *Self::DISPERSION.end())
    }
}

impl LossMonitor {
    const WINDOW: f64 = 50.0;
    /// Losses in excess that make an alarm.
    const ALARM: f64 = 10.0;
    /// Minimum packets for [`LossMonitor::are_known`]; the reference needs only a window.
    const MIN_PACKETS: f64 = 100.0;
    /// Packets after which a measurement of losses is good enough.
    const ENOUGH_PACKETS: f64 = 600.0;
    /// Packets and decisions above which the counts are halved.
    const FADE: f64 = 2000.0;
    const FADE_DECISIONS: f64 = 32.0;
    /// Standard deviations between two loss rates that clearly differ.
    const CLEAR_DEVIATIONS: f64 = 4.0;
    /// The loss rate that is taken for the path's own while nothing is known of it.
    const ASSUMED_RATE: f64 = 0.1;

    /// Adds measurements; `baseline` is true if the share was at most 1/8, or the path was
    /// measured.
    pub(super) fn add(&mut self, load: &Load, baseline: bool) {
        let counts = Counts::of(load);
        self.phase.add(counts);
        self.retransmitted += load.retransmitted as f64;
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
        if baseline {
            self.baseline.add(counts);
            let Counts {
                decisions, packets, ..
            } = self.baseline;
            if packets > Self::FADE && decisions > Self::FADE_DECISIONS {
                self.baseline = self.baseline.halved();
            }
        }
    }

    /// The loss rate that makes no excess: the highest that the path may well have by itself, and half
    /// of that more, so that chance makes no alarm.
    fn reference(&self) -> f64 {
        let Counts {
            packets, losses, ..
        } = self.baseline;
        if packets < Self::WINDOW {
            return Self::ASSUMED_RATE;
        }
        let deviation = (self.baseline.dispersion() * (losses + 1.0)).sqrt();
        let highest = 2.0f64.mul_add(deviation, losses + 2.0) / packets;
        highest * 1.5
    }

    /// More is lost than the path loses by itself.
    pub(super) fn is_alarming(&self) -> bool {
        self.excess >= Self::ALARM * self.baseline.dispersion()
    }

    /// At least a quarter of the losses that make an alarm.
    pub(super) fn are_suspicious(&self) -> bool {
        let Counts {
            packets, losses, ..
        } = self.phase;
        match self.are_known() {
            true => self.excess >= Self::ALARM * self.baseline.dispersion() / 4.0,
            false => losses >= 3.0 && losses * 100.0 >= packets,
        }
    }

    /// The packets and losses of the alarm.
    pub(super) fn alarming(&self) -> Counts {
        self.run
    }

    /// Returns true if the loss rate of this phase is at least four standard deviations below the alarm's.
    /// The deviation includes bursts. Four, because an alarm selects the highest of many rates.
    pub(super) fn have_fallen(&self, alarming: Counts) -> bool {
        let mut both = alarming;
        both.add(self.phase);
        let inverse = alarming.packets.max(1.0).recip() + self.phase.packets.max(1.0).recip();
        let variance = self.baseline.dispersion() * both.rate() * (1.0 - both.rate()) * inverse;
        alarming.rate() - self.phase.rate() > Self::CLEAR_DEVIATIONS * variance.sqrt()
    }

    /// True if at least 1 % is lost and the path's own loss rate is unknown.
    pub(super) fn are_unexplained(&self) -> bool {
        let Counts {
            packets, losses, ..
        } = self.phase;
        !self.are_known() && losses >= 10.0 && losses * 100.0 >= packets
    }

    /// True if enough packets were measured without redundancy to know the path's own loss rate.
    pub(super) fn are_known(&self) -> bool {
        self.baseline.packets >= Self::MIN_PACKETS
    }

    /// True if redundancy repaired at least three of four losses of this phase.
    pub(super) fn are_repaired(&self) -> bool {
        4.0 * self.retransmitted <= self.phase.losses
    }

    /// The packets and losses of this phase.
    pub(super) fn of_phase(&self) -> Counts {
        self.phase
    }

    /// True if a measurement of the path by itself can end: it has enough packets, or it shows that the
    /// path causes at least half of the loss rate before.
    pub(super) fn are_measured(&self, before: Counts) -> bool {
        let Counts {
            packets, losses, ..
        } = self.baseline;
        packets >= Self::ENOUGH_PACKETS
            || self.are_known() && losses >= packets * before.rate() / 2.0
    }

    /// A phase starts: the excess of the last one does not count.
    pub(super) fn restart(&mut self) {
        self.phase = Counts::default();
        self.retransmitted = 0.0;
        self.window = Counts::default();
        self.run = Counts::default();
        self.excess = 0.0;
    }

    /// Takes the losses of this phase for the path's own.
    pub(super) fn set_baseline(&mut self) {
        if self.phase.packets >= Self::WINDOW {
            self.baseline = self.phase;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_buckets_are_quarters_of_powers_of_two() {
        let bounds: Vec<_> = (0..8).map(lower).collect();
        assert_eq!(bounds, [0, 256, 320, 384, 448, 512, 640, 768]);
    }

    #[test]
    fn median_is_middle_of_bucket() {
        let mut queue = [0; 64];
        assert_eq!(median(&queue), None);
        queue[1] = 1;
        queue[5] = 2;
        assert_eq!(median(&queue), Some(Duration::from_micros(576)));
    }

    #[test]
    fn load_without_windows_is_none() {
        assert_eq!(Load::from_raw(&types::network_load::default()), None);
    }
}
