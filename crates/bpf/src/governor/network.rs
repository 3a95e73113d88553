//! The decision about the connections to one peer network.
//!
//! Watch after an alarm: redundancy stops when delay or loss exceeds what was seen while nothing was
//! added. If the alarm comes again while nothing is added, the queue is not ours.

use std::time::Duration;

use super::load::{Load, Losses, Usual};
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
const DELAY_ALLOWED: Duration = Duration::from_millis(5);
/// Maximum of that half ITT: many idle connections do not hide a queue.
const ITT_ALLOWED: Duration = Duration::from_millis(50);
/// First interval between measurements of a queue of others; it doubles each time.
const MEASURE_AFTER: Duration = Duration::from_secs(10);
const MEASURE_AFTER_AT_MOST: Duration = Duration::from_secs(80);
/// Packets are late if the queue exceeds the usual one by an ITT and this.
const LATE: Duration = Duration::from_millis(10);
/// Divisor of the cap after the verdict [`Verdict::Ours`]. It is large because each alarm on the way back
/// up makes packets late. A result below `LOW / 2` becomes 0.
const CAP_DIVISOR: Share = 4;
/// Minimum time that a lowered cap holds; each verdict about us doubles it, up to the maximum.
const CAP_HOLDS: Duration = Duration::from_secs(20);
pub(super) const CAP_HOLDS_AT_MOST: Duration = Duration::from_secs(320);

/// Reciprocal of the rate at which a queue that drains falls at least, in seconds per second: the spare
/// part of the link without redundancy.
const SPARE: u32 = 32;
/// Minimum number of decisions in [`Phase::Watch`].
const WATCHED: u32 = 8;
/// How long other networks start with a low share after the last measurements of a suspected one.
const SUSPECTED: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Redundancy is allowed.
    Add,
    /// Nothing is added, until the queue is short again.
    Drain,
    /// Nothing is added: does the alarm come again?
    Watch,
    /// Nothing is added for a while, to measure the path by itself.
    Measure,
}

/// The decision about a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowance {
    pub(super) share: Share,
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
    stepped: Duration,
    /// The highest share that is tried, and how long it holds at least.
    cap: Share,
    cap_holds: Duration,
    usual: Usual,
    losses: Losses,
    over: Option<Excess>,
    /// The longest queue of this phase, and when it was seen last.
    longest: Duration,
    longest_at: Duration,
    /// Decisions in this phase.
    decisions: u32,
    /// Time, share and loss rate when redundancy stopped.
    stopped: Stopped,
    /// When the network was seen first.
    started: Duration,
    /// When redundancy was seen last.
    added: Duration,
    /// When the queue was short last.
    short: Duration,
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
    /// When there were measurements last.
    pub(super) seen: Duration,
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
struct Stopped {
    at: Duration,
    share: Share,
    loss_rate: f64,
}

impl Network {
    /// A network with this share at first.
    pub(super) fn new(now: Duration, initial: Share) -> Self {
        Self {
            phase: Phase::Add,
            since: now,
            share: initial,
            stepped: now,
            cap: FULL,
            cap_holds: CAP_HOLDS / 2,
            usual: Usual::default(),
            losses: Losses::default(),
            over: None,
            longest: Duration::ZERO,
            longest_at: now,
            decisions: 0,
            stopped: Stopped::default(),
            started: now,
            added: now,
            short: now,
            measured: now,
            measure_after: MEASURE_AFTER,
            packets_since_loss: 0,
            was_calm: false,
            late: 0,
            debt: 0,
            alarm: None,
            verdict: None,
            seen: now,
        }
    }

    /// The decision.
    pub(super) fn allowance(&self) -> Allowance {
        Allowance {
            share: self.share,
            verdict: self.verdict,
            alarm: self.alarm,
        }
    }

    /// True while an alarm is looked into.
    pub(super) fn is_suspected(&self, now: Duration) -> bool {
        matches!(self.phase, Phase::Drain | Phase::Watch) && now - self.seen < SUSPECTED
    }

    /// Decides by the measurements since the last decision.
    pub(super) fn decide(&mut self, now: Duration, load: &Load) {
        self.seen = now;
        self.decisions += 1;
        if load.is_redundant {
            self.added = now;
        }
        let nothing_added = now - self.added > Duration::from_secs(2).max(4 * load.rtt);
        let allowed = DELAY_ALLOWED + (load.itt / 2).min(ITT_ALLOWED);
        if load.queue <= allowed {
            self.short = now;
            self.measure_after = MEASURE_AFTER;
        }
        if load.queue >= self.longest {
            (self.longest, self.longest_at) = (load.queue, now);
        }
        self.count(load);
        // At first, losses that redundancy caused are still retransmitted.
        let is_settled = now - self.since > Duration::from_millis(250).max(2 * load.rtt);
        let alone = match self.phase {
            Phase::Add => nothing_added || self.share <= LOW,
            Phase::Drain => false,
            Phase::Watch | Phase::Measure => is_settled,
        };
        self.losses.add(load, alone);
        let alarm = self.find_alarm(now, load, allowed);
        match (self.phase, alarm) {
            (Phase::Add, Some(alarm)) if !nothing_added => self.stop(now, alarm),
            (Phase::Add, _) => {
                if nothing_added {
                    self.usual.raise(load.queue);
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
        self.usual.fade(load.queue);
    }

    fn count(&mut self, load: &Load) {
        self.packets_since_loss = match load.losses {
            0 => self.packets_since_loss + load.packets,
            _ => 0,
        };
        if load.queue > self.usual.queue() + load.itt.min(2 * ITT_ALLOWED) + LATE {
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
        if load.queue <= self.usual.queue() * 5 / 4 + allowed {
            self.over = self.over.filter(|over| !over.was_short);
            if let Some(over) = &mut self.over {
                over.was_short = true;
            }
        } else {
            let over = self.over.get_or_insert(Excess {
                since: now,
                decisions: 0,
                was_short: false,
            });
            over.decisions += 1;
            over.was_short = false;
            let patience = Duration::from_secs(1).min(2 * load.rtt);
            if over.decisions > 1 && now - over.since >= patience {
                return Some(Alarm::Queue);
            }
        }
        self.losses.is_alarming().then_some(Alarm::Loss)
    }

    fn enter(&mut self, phase: Phase, share: Share, now: Duration) {
        self.phase = phase;
        self.since = now;
        self.over = None;
        (self.longest, self.longest_at) = (Duration::ZERO, now);
        self.decisions = 0;
        self.losses.restart();
        self.set_share(share, now);
    }

    fn set_share(&mut self, share: Share, now: Duration) {
        if share != self.share {
            self.share = share;
            self.stepped = now;
        }
    }

    /// True if redundancy stopped at this decision.
    pub(super) fn has_stopped(&self, now: Duration) -> bool {
        self.share == 0 && self.stepped == now
    }

    /// Another network has stopped: this one stops as well if it loses more than is expected, because
    /// both may share a policer. Returns true if it stops.
    pub(super) fn stop_with_others(&mut self, now: Duration) -> bool {
        let is_concerned =
            self.phase == Phase::Add && self.share > 0 && self.losses.are_suspicious();
        if is_concerned {
            self.stop(now, Alarm::Loss);
        }
        is_concerned
    }

    fn stop(&mut self, now: Duration, alarm: Alarm) {
        // The alarm compares with a loss rate that is only assumed: measure the path's own first.
        if alarm == Alarm::Loss && !self.losses.are_known() {
            return self.start_measuring(now);
        }
        self.alarm = Some(alarm);
        self.stopped = Stopped {
            at: now,
            share: self.share,
            loss_rate: self.losses.alarming_rate(),
        };
        self.enter(Phase::Drain, 0, now);
    }

    /// Adjusts the share while there is no alarm.
    fn adjust(&mut self, now: Duration, load: &Load, allowed: Duration) {
        let is_used = self.share == self.cap;
        if is_used && self.cap < FULL && self.debt == 0 && now - self.since > self.cap_holds {
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
        } else if now - self.stepped >= Duration::from_secs(1).max(4 * load.rtt) {
            self.set_share(target.min((2 * self.share).max(LOW)), now);
        }
    }

    /// Returns true if the path must be measured without redundancy. Either its queue has not been short
    /// for 10 s, or it loses packets and its loss rate without redundancy is unknown.
    fn is_to_be_measured(&self, now: Duration, load: &Load, allowed: Duration) -> bool {
        let for_long = |since: Duration, seconds| now - since > Duration::from_secs(seconds);
        let is_queue_stale = self.usual.queue() > allowed
            && for_long(self.short, 10)
            && now - self.measured > self.measure_after;
        let seldom = if self.measured == self.started {
            5
        } else {
            120
        };
        let are_losses_unknown = self.losses.are_unexplained() && for_long(self.measured, seldom);
        load.is_redundant && (is_queue_stale || are_losses_unknown)
    }

    fn drain(&mut self, now: Duration, load: &Load, allowed: Duration) {
        let elapsed = now - self.since;
        let usual = self.usual.queue();
        if self.alarm == Some(Alarm::Loss) || load.queue <= usual + allowed / 2 {
            return self.enter(Phase::Watch, 0, now);
        }
        // Measurements are late: the queue still grew when redundancy stopped.
        let fallen = self.longest - load.queue;
        if elapsed <= time_to_drain(load) || SPARE * fallen > now - self.longest_at {
            return;
        }
        if 4 * fallen < self.longest.saturating_sub(usual) {
            self.acquit(now);
        } else if elapsed > Duration::from_secs(10).max(32 * load.rtt) {
            self.enter(Phase::Watch, 0, now);
        }
    }

    fn watch(&mut self, now: Duration, load: &Load, alarm: Option<Alarm>) {
        if let Some(alarm) = alarm {
            if alarm == Alarm::Loss || now - self.stopped.at > time_to_drain(load) {
                return self.acquit(now);
            }
            // TCP still sends the data that had to wait for redundant bytes.
            self.enter(Phase::Drain, 0, now);
            self.since = self.stopped.at;
            return;
        }
        let is_short = now - self.since <= Duration::from_secs(10).max(40 * load.rtt);
        // Streams may have paused, so that the time alone shows nothing.
        if is_short || self.decisions < WATCHED {
            return;
        }
        if self.alarm == Some(Alarm::Loss) && !self.losses.have_gone(self.stopped.loss_rate) {
            return self.acquit(now);
        }
        self.verdict = Some(Verdict::Ours);
        self.debt = PACKETS_PER_LATE * std::mem::take(&mut self.late);
        self.cap_holds = CAP_HOLDS_AT_MOST.min(2 * self.cap_holds);
        self.usual.measured(self.longest);
        self.measured = now;
        self.cap = match self.cap.min(self.stopped.share) / CAP_DIVISOR {
            cap if cap < LOW / 2 => 0,
            cap => cap,
        };
        self.enter(Phase::Add, self.cap.min(LOW), now);
    }

    /// The alarm was not about us: what was seen without redundancy is usual.
    fn acquit(&mut self, now: Duration) {
        self.verdict = Some(Verdict::NotOurs);
        self.late = 0;
        self.usual.raise(self.longest);
        if self.alarm == Some(Alarm::Loss) {
            self.losses.learn();
        }
        self.measured = now;
        self.enter(Phase::Add, self.stopped.share, now);
    }

    fn start_measuring(&mut self, now: Duration) {
        self.stopped.share = self.share;
        self.stopped.loss_rate = self.losses.rate();
        self.enter(Phase::Measure, 0, now);
    }

    fn measure(&mut self, now: Duration, load: &Load, allowed: Duration) {
        let elapsed = now - self.since;
        let long = time_to_drain(load);
        let has_queue = self.usual.queue() > allowed;
        if elapsed > long {
            self.usual.measured(self.longest);
            self.measure_after = MEASURE_AFTER_AT_MOST.min(2 * self.measure_after);
        } else if has_queue || !self.losses.are_measured(self.stopped.loss_rate) {
            if elapsed < long / 2 {
                // The queue may still hold our own bytes.
                self.longest = Duration::ZERO;
            }
            return;
        }
        self.measured = now;
        self.enter(Phase::Add, self.stopped.share, now);
    }
}

/// Time after which a queue that is still long is not taken for what redundancy left behind.
fn time_to_drain(load: &Load) -> Duration {
    Duration::from_secs(3).max(16 * load.rtt)
}
