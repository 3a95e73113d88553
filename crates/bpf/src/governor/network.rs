//! The decision about the connections to one peer network.
//!
//! Watch after an alarm: redundancy stops when delay or loss exceeds the baseline without
//! redundancy. If the alarm repeats while redundancy is stopped, the queue is not ours.
//!
//! While redundancy repairs the losses, a path's own loss rate is measured with half of it. Where
//! packets are dropped because they are too many, the loss rate falls far more than the load: a policer
//! that drops a tenth of a load drops nothing of nine tenths of it. So half distinguishes such losses
//! from others. Once streams have a backlog, which fills any gap, only a stop does.

use std::time::Duration;

use super::load::{Baseline, Counts, Load, LossMonitor};
use crate::contract::types::governor_share;
use crate::{Alarm, Verdict};

/// Eligible segments of [`FULL`] that carry redundancy.
pub(crate) type Share = u32;
/// Every eligible segment carries redundancy.
pub(crate) const FULL: Share = governor_share::FULL_SHARE.0;
/// The share to ramp up from, and on a path that loses less than the target tolerates.
pub(crate) const LOW: Share = governor_share::LOW_SHARE.0;

/// Packets without a loss after which a path needs no more than [`LOW`]: the target of 0.1 % lost.
const CALM_PACKETS: u64 = 1000;
/// Packets that must be in time for each late one before the cap rises: twice as many as a p99 needs.
const PACKETS_PER_LATE: u64 = 200;
/// Queueing delay that makes no alarm, besides half an ITT: the serialisation of a bundle on a narrow link
/// looks like a queue.
const ALLOWED_DELAY: Duration = Duration::from_millis(5);
/// Maximum of that half ITT: many idle connections do not hide a queue.
const MAX_ALLOWED_ITT: Duration = Duration::from_millis(50);
/// First interval between measurements of a queue of others; it doubles each time.
const MEASURE_AFTER: Duration = Duration::from_secs(10);
const MAX_MEASURE_AFTER: Duration = Duration::from_secs(80);
/// Packets are late if the queue exceeds the usual one by an ITT and this.
const LATE_THRESHOLD: Duration = Duration::from_millis(10);
/// Divisor of the cap after the verdict [`Verdict::Ours`]. It is large because each alarm on the way back
/// up makes packets late. A result below `LOW / 2` becomes 0.
const CAP_DIVISOR: Share = 4;
/// Minimum time that a lowered cap holds; each verdict about us doubles it, up to the maximum.
const MIN_CAP_TIME: Duration = Duration::from_secs(20);
pub(super) const MAX_CAP_TIME: Duration = Duration::from_secs(320);

/// Reciprocal of the rate at which a queue that drains falls at least, in seconds per second: the spare
/// part of the link without redundancy.
const MIN_SPARE_RATE: u32 = 32;
/// Minimum number of decisions in [`Phase::Watch`].
const MIN_WATCH_DECISIONS: u32 = 8;
/// How long other networks start with a low share after the last measurements of a suspected one.
const SUSPICION_TIME: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Redundancy is allowed.
    Add,
    /// Nothing is added, until the queue is short again.
    Drain,
    /// Nothing is added: does the alarm come again?
    Watch,
    /// Less is added for a while, to measure the path by itself: half as much if there is no queue and
    /// losses are repaired, otherwise nothing.
    Measure,
}

/// The decision about a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowance {
    pub(super) share: Share,
    pub(super) is_busy: bool,
    pub(super) verdict: Option<Verdict>,
    pub(super) alarm: Option<Alarm>,
}

/// The connections to one peer network.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    phase: Phase,
    /// When the phase started; of [`Phase::Add`] also when the cap changed.
    since: Duration,
    share: Share,
    /// When the share changed last.
    share_changed_at: Duration,
    /// The highest share that is tried, and how long it holds at least.
    cap: Share,
    cap_time: Duration,
    baseline: Baseline,
    losses: LossMonitor,
    excess: Option<Excess>,
    /// The longest queue of this phase, and when it was seen last.
    peak_queue: Duration,
    peak_at: Duration,
    /// Decisions in this phase.
    decisions: u32,
    /// Time, share and losses when redundancy stopped.
    stopped: StopState,
    /// When the network was seen first.
    started: Duration,
    /// When redundancy was seen last.
    added: Duration,
    /// When the queue was short last.
    short_at: Duration,
    /// When the path was measured by itself last.
    measured: Duration,
    measure_after: Duration,
    packets_since_loss: u64,
    was_calm: bool,
    /// Packets that came late in this excursion of the queue.
    late: u64,
    /// Packets that must be in time before the cap rises.
    debt: u64,
    alarm: Option<Alarm>,
    verdict: Option<Verdict>,
    rate: MessageRate,
    /// When there were measurements last.
    pub(super) last_seen: Duration,
}

/// A queue over the threshold of the alarm.
#[derive(Debug, Clone, Copy)]
struct Excess {
    since: Duration,
    /// Decisions that found it over the threshold.
    decisions: u32,
    /// True if the last decision found it below. One such decision proves nothing: the first window of a
    /// burst meets an empty queue.
    was_short: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct StopState {
    at: Duration,
    share: Share,
    /// Packets and losses of the alarm, or of the phase before a measurement.
    losses: Counts,
}

impl Network {
    /// A network with this share at first.
    pub(super) fn new(now: Duration, initial: Share) -> Self {
        Self {
            phase: Phase::Add,
            since: now,
            share: initial,
            share_changed_at: now,
            cap: FULL,
            cap_time: MIN_CAP_TIME / 2,
            baseline: Baseline::default(),
            losses: LossMonitor::default(),
            excess: None,
            peak_queue: Duration::ZERO,
            peak_at: now,
            decisions: 0,
            stopped: StopState::default(),
            started: now,
            added: now,
            short_at: now,
            measured: now,
            measure_after: MEASURE_AFTER,
            packets_since_loss: 0,
            was_calm: false,
            late: 0,
            debt: 0,
            alarm: None,
            verdict: None,
            rate: MessageRate {
                since: now,
                ..MessageRate::default()
            },
            last_seen: now,
        }
    }

    /// The decision.
    pub(super) fn allowance(&self) -> Allowance {
        Allowance {
            share: self.share,
            is_busy: self.rate.is_busy,
            verdict: self.verdict,
            alarm: self.alarm,
        }
    }

    /// True while an alarm is looked into.
    pub(super) fn is_suspected(&self, now: Duration) -> bool {
        matches!(self.phase, Phase::Drain | Phase::Watch) && now - self.last_seen < SUSPICION_TIME
    }

    /// Decides by the measurements since the last decision.
    pub(super) fn decide(&mut self, now: Duration, load: &Load) {
        self.last_seen = now;
        self.decisions += 1;
        if load.is_redundant {
            self.added = now;
        }
        let nothing_added = now - self.added > Duration::from_secs(2).max(4 * load.rtt);
        let allowed = ALLOWED_DELAY + (load.itt / 2).min(MAX_ALLOWED_ITT);
        if load.queue <= allowed {
            self.short_at = now;
            self.measure_after = MEASURE_AFTER;
        }
        if load.queue >= self.peak_queue {
            (self.peak_queue, self.peak_at) = (load.queue, now);
        }
        self.count(load);
        self.rate.add(now, load.messages);
        // At first, windows began before the phase, and losses that redundancy caused are still
        // retransmitted.
        let is_past_transient = now - self.since > load.rtt + load.window.max(load.rtt);
        if self.phase == Phase::Add {
            self.losses.add(load, nothing_added || self.share <= LOW);
        } else if is_past_transient {
            self.losses.add(load, self.phase != Phase::Drain);
        }
        let alarm = self.find_alarm(now, load, allowed);
        match (self.phase, alarm) {
            (Phase::Add, Some(alarm)) if !nothing_added => self.stop_redundancy(now, alarm),
            (Phase::Add, _) => {
                if nothing_added {
                    self.baseline.raise(load.queue);
                    if alarm == Some(Alarm::Loss) {
                        self.losses.restart();
                    }
                }
                self.adjust(now, load, allowed);
            }
            (Phase::Drain, _) => self.drain(now, load, allowed),
            (Phase::Watch, _) => self.watch(now, load, alarm),
            (Phase::Measure, _) => self.measure(now, load, allowed),
        }
        self.baseline.fade(load.queue);
    }

    fn count(&mut self, load: &Load) {
        self.packets_since_loss = match load.losses {
            0 => self.packets_since_loss + load.packets,
            _ => 0,
        };
        if load.queue > self.baseline.queue() + load.itt.min(2 * MAX_ALLOWED_ITT) + LATE_THRESHOLD {
            self.late += load.packets;
        } else {
            self.debt = self.debt.saturating_sub(load.packets);
            if self.phase == Phase::Add {
                self.late = 0;
            }
        }
    }

    fn find_alarm(&mut self, now: Duration, load: &Load, allowed: Duration) -> Option<Alarm> {
        // The peaks of others' queues differ, the more the longer these are.
        if load.queue <= self.baseline.queue() * 5 / 4 + allowed {
            self.excess = self.excess.filter(|excess| !excess.was_short);
            if let Some(excess) = &mut self.excess {
                excess.was_short = true;
            }
        } else {
            let excess = self.excess.get_or_insert(Excess {
                since: now,
                decisions: 0,
                was_short: false,
            });
            excess.decisions += 1;
            excess.was_short = false;
            let timeout = Duration::from_secs(1).min(2 * load.rtt);
            if excess.decisions > 1 && now - excess.since >= timeout {
                return Some(Alarm::Queue);
            }
        }
        self.losses.is_alarming().then_some(Alarm::Loss)
    }

    fn enter(&mut self, phase: Phase, share: Share, now: Duration) {
        self.phase = phase;
        self.since = now;
        self.excess = None;
        (self.peak_queue, self.peak_at) = (Duration::ZERO, now);
        self.decisions = 0;
        self.losses.restart();
        self.set_share(share, now);
    }

    fn set_share(&mut self, share: Share, now: Duration) {
        if share != self.share {
            self.share = share;
            self.share_changed_at = now;
        }
    }

    /// True if redundancy stopped, or was reduced to measure the path, at this decision.
    pub(super) fn has_stopped(&self, now: Duration) -> bool {
        self.phase != Phase::Add && self.share_changed_at == now
    }

    /// Another network has stopped: this one stops as well if it loses more than is expected, because
    /// both may share a policer. Returns true if it stops.
    pub(super) fn join_stop(&mut self, now: Duration) -> bool {
        let is_suspicious =
            self.phase == Phase::Add && self.share > 0 && self.losses.are_suspicious();
        if is_suspicious {
            self.stop_redundancy(now, Alarm::Loss);
        }
        is_suspicious
    }

    fn stop_redundancy(&mut self, now: Duration, alarm: Alarm) {
        // The alarm compares with a loss rate that is only assumed: measure the path's own first.
        if alarm == Alarm::Loss && !self.losses.are_known() {
            return self.start_measuring(now);
        }
        self.alarm = Some(alarm);
        self.stopped = StopState {
            at: now,
            share: self.share,
            losses: self.losses.alarming(),
        };
        self.enter(Phase::Drain, 0, now);
    }

    /// Adjusts the share without an alarm.
    fn adjust(&mut self, now: Duration, load: &Load, allowed: Duration) {
        let is_used = self.share == self.cap;
        if is_used && self.cap < FULL && self.debt == 0 && now - self.since > self.cap_time {
            self.cap = FULL.min(2 * self.cap.max(LOW / 2));
            self.since = now;
        }
        if self.is_to_be_measured(now, load, allowed) {
            return self.start_measuring(now);
        }
        let is_calm = self.packets_since_loss > CALM_PACKETS;
        let was_calm = std::mem::replace(&mut self.was_calm, is_calm);
        let target = match is_calm {
            true => self.cap.min(LOW),
            false => self.cap,
        };
        // After a calm, a share that was carried before needs no proof.
        if self.share >= target || was_calm {
            self.set_share(target, now);
        } else if now - self.share_changed_at >= Duration::from_secs(1).max(4 * load.rtt) {
            self.set_share(target.min((2 * self.share).max(LOW)), now);
        }
    }

    /// Returns true if the path must be measured without redundancy. Either its queue has not been short
    /// for 10 s, or it loses packets and its loss rate without redundancy is unknown.
    fn is_to_be_measured(&self, now: Duration, load: &Load, allowed: Duration) -> bool {
        let is_longer_than = |since: Duration, seconds| now - since > Duration::from_secs(seconds);
        let is_queue_stale = self.baseline.queue() > allowed
            && is_longer_than(self.short_at, 10)
            && now - self.measured > self.measure_after;
        let min_interval = if self.measured == self.started {
            5
        } else {
            120
        };
        let are_losses_unknown =
            self.losses.are_unexplained() && is_longer_than(self.measured, min_interval);
        load.is_redundant && (is_queue_stale || are_losses_unknown)
    }

    fn drain(&mut self, now: Duration, load: &Load, allowed: Duration) {
        let elapsed = now - self.since;
        let baseline = self.baseline.queue();
        if self.alarm == Some(Alarm::Loss) || load.queue <= baseline + allowed / 2 {
            return self.enter(Phase::Watch, 0, now);
        }
        // Measurements are late: the queue still grew when redundancy stopped.
        let fallen = self.peak_queue - load.queue;
        if elapsed <= time_to_drain(load) || MIN_SPARE_RATE * fallen > now - self.peak_at {
            return;
        }
        if 4 * fallen < self.peak_queue.saturating_sub(baseline) {
            self.reject_alarm(now);
        } else if elapsed > Duration::from_secs(10).max(32 * load.rtt) {
            self.enter(Phase::Watch, 0, now);
        }
    }

    fn watch(&mut self, now: Duration, load: &Load, alarm: Option<Alarm>) {
        if let Some(alarm) = alarm {
            if alarm == Alarm::Loss || now - self.stopped.at > time_to_drain(load) {
                return self.reject_alarm(now);
            }
            // TCP still sends the data that had to wait for redundant bytes.
            self.enter(Phase::Drain, 0, now);
            self.since = self.stopped.at;
            return;
        }
        let shortest = Duration::from_secs(10).max(40 * load.rtt) + load.window;
        let is_short = now - self.since <= shortest;
        // Streams may have paused, so the time by itself proves nothing.
        if is_short || self.decisions < MIN_WATCH_DECISIONS {
            return;
        }
        if self.alarm == Some(Alarm::Loss) && !self.losses.have_fallen(self.stopped.losses) {
            return self.reject_alarm(now);
        }
        self.verdict = Some(Verdict::Ours);
        self.debt = PACKETS_PER_LATE * std::mem::take(&mut self.late);
        self.cap_time = MAX_CAP_TIME.min(2 * self.cap_time);
        self.baseline.measured(self.peak_queue);
        self.measured = now;
        self.cap = match self.cap.min(self.stopped.share) / CAP_DIVISOR {
            cap if cap < LOW / 2 => 0,
            cap => cap,
        };
        self.enter(Phase::Add, self.cap.min(LOW), now);
    }

    /// Rejects the alarm: the queue or loss seen without redundancy becomes the baseline.
    fn reject_alarm(&mut self, now: Duration) {
        self.verdict = Some(Verdict::NotOurs);
        self.late = 0;
        self.baseline.raise(self.peak_queue);
        if self.alarm == Some(Alarm::Loss) {
            self.losses.set_baseline();
        }
        self.measured = now;
        self.enter(Phase::Add, self.stopped.share, now);
    }

    fn start_measuring(&mut self, now: Duration) {
        self.stopped.share = self.share;
        self.stopped.losses = self.losses.of_phase();
        let share = match self.baseline.queue() <= ALLOWED_DELAY && self.losses.are_repaired() {
            true => self.share / 2,
            false => 0,
        };
        self.enter(Phase::Measure, share, now);
    }

    fn measure(&mut self, now: Duration, load: &Load, allowed: Duration) {
        let elapsed = now - self.since;
        let drain_time = time_to_drain(load);
        let has_queue = self.baseline.queue() > allowed;
        if elapsed > drain_time {
            if self.share == 0 {
                self.baseline.measured(self.peak_queue);
                self.measure_after = MAX_MEASURE_AFTER.min(2 * self.measure_after);
            }
        } else if has_queue || !self.losses.are_measured(self.stopped.losses) {
            if elapsed < drain_time / 2 {
                // The queue may still hold our own bytes.
                self.peak_queue = Duration::ZERO;
            }
            return;
        }
        self.measured = now;
        self.enter(Phase::Add, self.stopped.share, now);
    }
}

/// The rate of messages to a network, over intervals of 1 s or more. While the network is busy, level
/// `auto` bundles one segment and copies none. A stream cannot measure this: a fair queue keeps the queues
/// of thin streams short while the link is full.
#[derive(Debug, Clone, Copy, Default)]
struct MessageRate {
    /// Start of the interval, and messages since then.
    since: Duration,
    messages: u64,
    is_busy: bool,
}

impl MessageRate {
    /// Messages per second above which a network is busy: four times what RFC 4828 allows one stream.
    const BUSY: f64 = 400.0;
    /// Messages per second below which it is not busy any more.
    const NOT_BUSY: f64 = 300.0;

    fn add(&mut self, now: Duration, messages: u64) {
        self.messages += messages;
        let elapsed = now - self.since;
        if elapsed >= Duration::from_secs(1) {
            let limit = match self.is_busy {
                true => Self::NOT_BUSY,
                false => Self::BUSY,
            };
            self.is_busy = self.messages as f64 > limit * elapsed.as_secs_f64();
            (self.since, self.messages) = (now, 0);
        }
    }
}

/// Time after which a long queue is no longer attributed to earlier redundancy.
fn time_to_drain(load: &Load) -> Duration {
    Duration::from_secs(3).max(16 * load.rtt) + load.window
}
