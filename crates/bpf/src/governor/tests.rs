//! The governor on paths of a simple model: a queue that grows by what exceeds the rate.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::load::Load;
use super::network::{Allowance, FULL, LOW, Network, Share};
use super::{GovernorDecision, INTERVAL, Key, decide, to_raw};
use crate::{Alarm, Verdict};

/// A path with these properties, in parts of its rate.
#[derive(Clone, Copy)]
struct Path {
    /// Load without redundancy, and what all redundancy adds.
    load: f64,
    redundancy: f64,
    /// Share of the packets that are lost at random.
    loss: f64,
    /// Probability that the packet after a lost one is lost as well; `None`: losses are independent.
    burst: Option<f64>,
    /// True if a policer drops what exceeds the rate, and nothing waits.
    is_policed: bool,
    streams: u64,
    itt: Duration,
    /// The queue of others, in milliseconds, by the time in seconds.
    other_queue: fn(f64) -> f64,
}

const PATH: Path = Path {
    load: 0.5,
    redundancy: 0.2,
    loss: 0.0,
    burst: None,
    is_policed: false,
    streams: 8,
    itt: Duration::from_millis(30),
    other_queue: |_| 0.0,
};

/// State of a network after a simulated run, with statistics of its decisions.
struct Outcome {
    network: Network,
    /// Decisions, the sum of their shares, and of these that came after 10 s and found packets late.
    decisions: u32,
    shares: f64,
    late: u32,
}

impl Outcome {
    fn mean_share(&self) -> f64 {
        self.shares / f64::from(self.decisions) / f64::from(FULL)
    }

    fn late(&self) -> f64 {
        f64::from(self.late) / f64::from(self.decisions)
    }

    fn verdict(&self) -> Option<Verdict> {
        self.network.allowance().verdict
    }
}

/// Uniform random numbers in 0..1 (Knuth's MMIX).
fn uniform(mut random: u64) -> impl FnMut() -> f64 {
    move || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn run(path: Path, seconds: u32) -> Outcome {
    run_seeded(path, seconds, 1)
}

fn run_seeded(path: Path, seconds: u32, seed: u64) -> Outcome {
    let mut uniform = uniform(seed);
    let mut was_lost = false;
    let mut outcome = Outcome {
        network: Network::new(Duration::ZERO, FULL),
        decisions: 0,
        shares: 0.0,
        late: 0,
    };
    let mut queue_ms = 0.0f64;
    // A connection's window lasts until its next packet. Its losses depend on the share at its start.
    let window = path.itt.max(INTERVAL);
    let mut shares = VecDeque::from([FULL]);
    for decision in 1..=seconds * 4 {
        let now = INTERVAL * decision;
        let share = outcome.network.allowance().share;
        shares.push_front(share);
        shares.truncate(window.div_duration_f64(INTERVAL) as usize);
        let part = f64::from(*shares.back().unwrap()) / f64::from(FULL);
        let excess = path.load + part * path.redundancy - 1.0;
        let mut loss = path.loss;
        match path.is_policed {
            true => loss += excess.max(0.0),
            false => queue_ms = (queue_ms + excess * 250.0).max(0.0),
        }
        let packets = path.streams * 250 / path.itt.as_millis() as u64;
        let after_loss = path.burst.unwrap_or(loss);
        // With this one, all together lose their share.
        let after_arrival = loss * (1.0 - after_loss) / (1.0 - loss);
        let losses = (0..packets).filter(|_| {
            was_lost = uniform() < if was_lost { after_loss } else { after_arrival };
            was_lost
        });
        let losses = losses.count() as u64;
        let queue = queue_ms + (path.other_queue)(now.as_secs_f64());
        outcome.network.decide(
            now,
            &Load {
                queue: Duration::from_micros((queue * 1000.0) as u64),
                itt: path.itt,
                rtt: Duration::from_millis(50),
                window,
                packets,
                messages: packets,
                losses,
                // A bundle is lost as well.
                retransmitted: (losses as f64 * loss).round() as u64,
                is_redundant: share > 0 && path.redundancy > 0.0,
            },
        );
        outcome.decisions += 1;
        outcome.shares += f64::from(share);
        outcome.late += u32::from(now > Duration::from_secs(10) && queue_ms > 40.0);
    }
    outcome
}

#[test]
fn queue_filled_by_redundancy_lowers_share() {
    let lossy = |load| Path {
        load,
        redundancy: 0.44,
        loss: 0.02,
        ..PATH
    };
    for load in [0.6, 0.76, 0.85] {
        let outcome = run(lossy(load), 300);
        let share = outcome.network.allowance().share;
        assert_eq!(outcome.verdict(), Some(Verdict::Ours), "load {load}");
        assert_eq!(outcome.network.allowance().alarm, Some(Alarm::Queue));
        assert!(share < FULL, "load {load}");
        assert!(
            outcome.late() < 0.02,
            "load {load}: late {}",
            outcome.late()
        );
    }
}

#[test]
fn queue_of_greedy_streams_keeps_share() {
    let outcome = run(
        Path {
            loss: 0.02,
            other_queue: |s| 150.0 * (s / 3.0).fract(),
            ..PATH
        },
        300,
    );
    assert_eq!(outcome.verdict(), Some(Verdict::NotOurs));
    assert!(outcome.mean_share() > 0.9, "{}", outcome.mean_share());
}

#[test]
fn queue_left_after_greedy_streams_is_ours() {
    let other_queue = |s: f64| {
        if s < 20.0 {
            150.0 * (s / 3.0).fract()
        } else {
            0.0
        }
    };
    let path = Path {
        load: 0.85,
        redundancy: 0.44,
        loss: 0.02,
        other_queue,
        ..PATH
    };
    let outcome = run(path, 120);
    assert!(outcome.late() < 0.15, "late {}", outcome.late());
    assert_eq!(outcome.verdict(), Some(Verdict::Ours));
}

#[test]
fn random_losses_keep_share() {
    for (streams, loss) in [(1, 0.02), (8, 0.01), (8, 0.05), (32, 0.25)] {
        let outcome = run(
            Path {
                streams,
                loss,
                ..PATH
            },
            300,
        );
        let share = outcome.mean_share();
        assert!(share > 0.9, "{streams} streams, loss {loss}: {share}");
    }
}

/// Losses in bursts vary more than independent ones (Jiang and Schulzrinne, NOSSDAV 2000, table 1;
/// Bolot, SIGCOMM 1993, table 3).
#[test]
fn losses_in_bursts_are_not_ours() {
    const SEEDS: u64 = 40;
    let mut wrong = Vec::new();
    for (loss, burst) in [(0.0282, 0.441), (0.09, 0.33), (0.12, 0.27), (0.16, 0.42)] {
        for streams in [4, 32] {
            let path = Path {
                loss,
                burst: Some(burst),
                streams,
                ..PATH
            };
            let outcomes = (1..=SEEDS).map(|seed| run_seeded(path, 120, seed));
            let ours = outcomes.filter(|it| it.verdict() == Some(Verdict::Ours));
            wrong.push((loss, streams, ours.count()));
        }
    }
    let total: usize = wrong.iter().map(|it| it.2).sum();
    assert!(total * 100 <= SEEDS as usize * wrong.len(), "{wrong:?}");
}

/// While the path's own loss rate is unknown, heavy losses start a measurement of 3 s, not a watch of
/// 10 s.
#[test]
fn heavy_losses_on_unknown_path_start_measurement() {
    for streams in [1, 2, 8, 32] {
        for loss in [0.15, 0.25, 0.4] {
            let path = Path {
                streams,
                loss,
                ..PATH
            };
            let outcome = run(path, 30);
            let share = outcome.mean_share();
            assert!(share > 0.85, "{streams} streams, loss {loss}: {share}");
        }
    }
}

#[test]
fn losses_of_overloaded_policer_lower_share() {
    for (load, redundancy) in [(0.76, 0.44), (0.9, 0.4), (0.6, 0.8), (0.5, 1.2)] {
        let path = Path {
            load,
            redundancy,
            is_policed: true,
            ..PATH
        };
        let outcome = run(path, 300);
        assert_eq!(outcome.network.allowance().alarm, Some(Alarm::Loss));
        assert_eq!(outcome.verdict(), Some(Verdict::Ours));
        let share = f64::from(outcome.network.allowance().share) / f64::from(FULL);
        assert!(load + redundancy * share < 1.0, "{load}: {share}");
    }
}

/// The first measurements after a stop began before it, because each lasts for an ITT.
#[test]
fn policer_overloaded_by_slow_streams_lowers_share() {
    for (streams, seconds) in [(64, 2), (256, 8)] {
        let path = Path {
            load: 0.76,
            redundancy: 0.44,
            is_policed: true,
            streams,
            itt: Duration::from_secs(seconds),
            ..PATH
        };
        let outcome = run(path, 300);
        assert_eq!(outcome.verdict(), Some(Verdict::Ours), "{seconds} s");
        assert!(outcome.mean_share() < 0.4, "{}", outcome.mean_share());
    }
}

/// The first alarm only shows how much the path's own losses vary.
#[test]
fn overloaded_policer_is_found_among_losses_in_bursts() {
    for (loss, burst) in [(0.0282, 0.441), (0.09, 0.33)] {
        let path = Path {
            load: 0.76,
            redundancy: 0.44,
            loss,
            burst: Some(burst),
            is_policed: true,
            ..PATH
        };
        let outcome = run(path, 300);
        assert_eq!(outcome.verdict(), Some(Verdict::Ours), "loss {loss}");
        assert!(outcome.mean_share() < 0.4, "{}", outcome.mean_share());
    }
}

/// TCP slows down, so that a policer that is overloaded loses no more than this.
#[test]
fn few_losses_added_by_redundancy_lower_share() {
    let path = Path {
        load: 0.9,
        redundancy: 0.13,
        is_policed: true,
        ..PATH
    };
    let outcome = run(path, 300);
    assert_eq!(outcome.network.allowance().alarm, Some(Alarm::Loss));
    assert_eq!(outcome.verdict(), Some(Verdict::Ours));
}

#[test]
fn path_without_losses_gets_low_share() {
    let outcome = run(PATH, 60);
    assert_eq!(outcome.network.allowance().share, LOW);
    assert_eq!(outcome.verdict(), None);
}

#[test]
fn first_loss_after_calm_restores_share() {
    let mut network = run(PATH, 60).network;
    let load = Load {
        packets: 64,
        losses: 1,
        rtt: Duration::from_millis(50),
        is_redundant: true,
        ..Load::default()
    };
    let share = |network: &Network| -> Share { network.allowance().share };
    network.decide(Duration::from_millis(60_250), &load);
    assert_eq!(share(&network), FULL);
}

/// Decisions of one network, each a quarter of a second after the last.
struct Decisions {
    network: Network,
    now: Duration,
    /// Maximum of the losses that are retransmitted.
    retransmitted: u64,
}

impl Decisions {
    fn new() -> Self {
        Self {
            network: Network::new(Duration::ZERO, FULL),
            now: Duration::ZERO,
            retransmitted: 0,
        }
    }

    fn decide(&mut self, queue_ms: u64, losses: u64, is_redundant: bool) {
        self.decide_by(queue_ms, 64, losses, is_redundant);
    }

    fn decide_by(&mut self, queue_ms: u64, packets: u64, losses: u64, is_redundant: bool) {
        self.now += INTERVAL;
        let load = Load {
            queue: Duration::from_millis(queue_ms),
            itt: Duration::from_millis(30),
            rtt: Duration::from_millis(50),
            window: INTERVAL,
            packets,
            losses,
            messages: packets,
            retransmitted: self.retransmitted.min(losses),
            is_redundant,
        };
        self.network.decide(self.now, &load);
    }

    /// Decides for this many seconds, with this queue in milliseconds and these losses per 64
    /// packets.
    fn run_for(&mut self, seconds: u32, queue_ms: u64, losses: u64) {
        for _ in 0..seconds * 4 {
            self.decide(queue_ms, losses, self.share() > 0);
        }
    }

    fn share(&self) -> Share {
        self.network.allowance().share
    }

    fn verdict(&self) -> Option<Verdict> {
        self.network.allowance().verdict
    }
}

/// Too few packets without redundancy to know the path's loss rate, and a queue too short for an
/// alarm.
#[test]
fn loss_measurement_does_not_wait_for_short_queue() {
    let decisions_with_less = |queue_ms| {
        let mut decisions = Decisions::new();
        for _ in 0..11 {
            decisions.decide_by(queue_ms, 4, 0, false);
        }
        let is_less = |_: &u32| {
            decisions.decide_by(queue_ms, 64, 10, decisions.share() > 0);
            decisions.share() < FULL
        };
        (0..100).filter(is_less).count()
    };
    assert_ne!(decisions_with_less(0), 0);
    assert_eq!(decisions_with_less(1), decisions_with_less(0));
}

/// Half of the redundancy is enough to measure a path's losses while it repairs them.
#[test]
fn losses_are_measured_at_half_share_if_repaired() {
    for (retransmitted, measuring_share) in [(1, FULL / 2), (2, 0)] {
        let mut decisions = Decisions::new();
        decisions.retransmitted = retransmitted;
        let mut shares = Vec::new();
        for _ in 0..400 {
            decisions.decide(0, 6, true);
            shares.push(decisions.share());
        }
        shares.dedup();
        assert_eq!(shares, [FULL, measuring_share, FULL]);
    }
}

/// A share that filled the queue is not tried again because a calm went by, in which it was not used.
#[test]
fn unused_cap_does_not_rise() {
    let mut decisions = Decisions::new();
    decisions.run_for(2, 0, 0);
    decisions.run_for(2, 100, 0);
    decisions.run_for(15, 0, 0);
    assert_eq!(decisions.verdict(), Some(Verdict::Ours));
    decisions.run_for(900, 0, 0);
    decisions.run_for(1, 0, 1);
    assert!(decisions.share() < FULL, "{}", decisions.share());
}

/// The queue gets short, and long again as TCP sends the data that had to wait.
#[test]
fn delayed_data_is_not_attributed_to_other_traffic() {
    let mut decisions = Decisions::new();
    decisions.run_for(2, 0, 0);
    decisions.run_for(1, 100, 0);
    assert_eq!(decisions.share(), 0);
    decisions.decide(0, 0, false);
    decisions.run_for(1, 100, 0);
    decisions.run_for(15, 0, 0);
    assert_eq!(decisions.verdict(), Some(Verdict::Ours));
}

/// The first window of each burst meets an empty queue.
#[test]
fn queue_of_bursts_lowers_share() {
    let mut decisions = Decisions::new();
    decisions.run_for(2, 0, 1);
    for _ in 0..4 {
        decisions.decide(0, 0, true);
        decisions.now += INTERVAL;
        decisions.decide(150, 0, true);
    }
    assert_eq!(decisions.share(), 0);
    assert_eq!(decisions.network.allowance().alarm, Some(Alarm::Queue));
}

/// A nearly full link has 4 % to spare for a queue of 600 ms. A queue of others changes at random.
#[test]
fn slowly_draining_queue_is_ours() {
    let mut decisions = Decisions::new();
    decisions.run_for(2, 0, 0);
    decisions.run_for(1, 100, 0);
    assert_eq!(decisions.share(), 0);
    for queue_ms in (0..600).rev().step_by(9) {
        decisions.decide(queue_ms, 0, false);
        assert_eq!(decisions.share(), 0, "{queue_ms}");
    }
    decisions.run_for(15, 0, 0);
    assert_eq!(decisions.verdict(), Some(Verdict::Ours));
}

/// Eight networks with one stream each. Each sees few losses, and the others' redundancy while it measures.
#[test]
fn networks_behind_one_policer_stop_together() {
    let mut uniform = uniform(7);
    let mut all = HashMap::new();
    let mut late = 0;
    for decision in 1..=4 * 300 {
        let now = INTERVAL * decision;
        let shares = all.values().map(|it: &Network| it.allowance().share);
        let share = match shares.len() {
            0 => 1.0,
            count => f64::from(shares.sum::<Share>()) / f64::from(FULL) / count as f64,
        };
        let loss = (0.76 + 0.44 * share - 1.0).max(0.0);
        late += u32::from(now > Duration::from_secs(60) && loss > 0.01);
        let loads: Vec<_> = (0..8u8)
            .map(|network| {
                let mut key = [0; size_of::<Key>()];
                key[0] = network;
                let losses = (0..8).filter(|_| uniform() < loss).count() as u64;
                let load = Load {
                    itt: Duration::from_millis(30),
                    rtt: Duration::from_millis(100),
                    packets: 8,
                    losses,
                    is_redundant: share > 0.0,
                    ..Load::default()
                };
                (key, load)
            })
            .collect();
        decide(&mut all, loads.into_iter(), FULL, now);
    }
    assert!(
        late < 100,
        "{late} of 960 decisions after a minute find losses"
    );
}

/// Other networks start with a low share only while a suspected one is measured.
#[test]
fn network_without_measurements_is_not_suspected() {
    let mut decisions = Decisions::new();
    decisions.run_for(2, 0, 0);
    decisions.run_for(1, 100, 0);
    let is_suspected = |after| {
        let now = decisions.now + Duration::from_secs(after);
        decisions.network.is_suspected(now)
    };
    assert!(is_suspected(0) && !is_suspected(5));
}

#[test]
fn pause_during_watch_gives_no_verdict() {
    let mut decisions = Decisions::new();
    decisions.run_for(2, 0, 0);
    decisions.run_for(2, 100, 0);
    decisions.run_for(1, 0, 0);
    assert_eq!(decisions.share(), 0);
    decisions.now += Duration::from_secs(60);
    decisions.run_for(1, 0, 0);
    assert_eq!(decisions.verdict(), None);
    decisions.run_for(2, 0, 0);
    assert_eq!(decisions.verdict(), Some(Verdict::Ours));
}

/// The path's own losses are known from a time in which nothing could be bundled.
#[test]
fn losses_without_redundancy_belong_to_path() {
    let mut decisions = Decisions::new();
    for decision in 0..240 {
        decisions.decide(0, if decision < 12 { 0 } else { 10 }, false);
    }
    decisions.decide(0, 10, true);
    assert_eq!(decisions.share(), FULL);
    assert_eq!(decisions.network.allowance().alarm, None);
}

/// The RTT grows by 60 ms for good, as after a change of routes.
#[test]
fn rtt_step_keeps_share() {
    let path = Path {
        loss: 0.02,
        other_queue: |s| if s < 30.0 { 0.0 } else { 60.0 },
        ..PATH
    };
    let outcome = run(path, 300);
    assert_eq!(outcome.verdict(), Some(Verdict::NotOurs));
    assert!(outcome.mean_share() > 0.9, "{}", outcome.mean_share());
}

/// Delays of slots, as of Wi-Fi.
#[test]
fn slotted_delays_keep_share() {
    let slots: [fn(f64) -> f64; 3] = [
        |s| 10.0 * (s * 7.31).fract(),
        |s| 20.0 * (s * 7.31).fract(),
        |s| 40.0 * (s * 7.31).fract(),
    ];
    for (other_queue, slot_ms) in slots.into_iter().zip([10, 20, 40]) {
        let path = Path {
            loss: 0.02,
            other_queue,
            ..PATH
        };
        let outcome = run(path, 300);
        let share = outcome.mean_share();
        assert!(share > 0.9, "slots of {slot_ms} ms: {share}");
    }
}

#[test]
fn queue_without_redundancy_is_never_ours() {
    let patterns: [fn(f64) -> f64; 4] = [
        |_| 0.0,
        |s| 150.0 * (s / 3.0).fract(),
        |s| if s % 40.0 < 20.0 { 0.0 } else { 80.0 },
        |s| if s < 30.0 { 0.0 } else { 60.0 },
    ];
    for other_queue in patterns {
        for load in [0.5, 0.95, 0.99] {
            for loss in [0.0, 0.02, 0.1, 0.25] {
                let path = Path {
                    load,
                    redundancy: 0.0,
                    loss,
                    other_queue,
                    ..PATH
                };
                let verdict = run(path, 120).verdict();
                assert_ne!(verdict, Some(Verdict::Ours), "{load} {loss}");
            }
        }
    }
}

#[test]
fn connection_reports_the_decision_that_it_met() {
    let allowance = Allowance {
        share: LOW,
        is_busy: true,
        verdict: Some(Verdict::Ours),
        alarm: Some(Alarm::Queue),
    };
    let decision = GovernorDecision {
        share: 0.125,
        verdict: Some(Verdict::Ours),
        alarm: Some(Alarm::Queue),
        busy_network: true,
    };
    assert_eq!(
        GovernorDecision::from_flow(&to_raw(allowance)),
        Some(decision)
    );
}

#[test]
fn network_is_busy_above_400_until_below_300() {
    let mut network = Network::new(Duration::ZERO, FULL);
    let mut now = Duration::ZERO;
    let mut is_busy_at = |per_s: u64| {
        // The first second includes messages at the previous rate.
        for _ in 0..8 {
            now += INTERVAL;
            let load = Load {
                rtt: Duration::from_millis(50),
                messages: per_s / 4,
                ..Load::default()
            };
            network.decide(now, &load);
        }
        network.allowance().is_busy
    };
    assert!(!is_busy_at(380));
    assert!(is_busy_at(440));
    assert!(is_busy_at(320));
    assert!(!is_busy_at(280));
    assert!(!is_busy_at(320));
}
