// The documentation quotes the printed lines.
#![allow(clippy::print_stdout)]

use pillion_bpf::{Observing, Options, Rule};
use rand::{Rng, RngExt};
use rand_distr::{Distribution, LogNormal};

use super::*;

/// A connection with its own path.
struct Connection {
    hash: u64,
    /// Mean lateness of a late segment in microseconds; 0 for paths without loss.
    late_us: f64,
}

impl Connection {
    fn new(rng: &mut impl Rng) -> Self {
        let lossy = rng.random_bool(0.5);
        let late_us = LogNormal::new(9.0, 1.0).unwrap().sample(rng);
        Self {
            hash: rng.random(),
            late_us: if lossy { late_us } else { 0.0 },
        }
    }

    /// Sends for the time of a reading. Bundles multiply the lateness by `bundled`, and reset the
    /// connection with this probability.
    fn send(&self, arm: Arm, bundled: f64, reset: f64, rng: &mut impl Rng) -> ArmCounts {
        let segments = rng.random_range(40..80);
        let share = match arm {
            Arm::Bundled => bundled,
            Arm::Plain => 1.0,
        };
        let late = LogNormal::new(0.0, 1.5).unwrap().sample(rng) * self.late_us * share;
        ArmCounts {
            segments,
            sent: segments,
            late_us: late as u64,
            cut: (arm == Arm::Bundled && rng.random_bool(reset)).into(),
            ..ArmCounts::default()
        }
    }
}

/// Effect of bundles at a time, in seconds: factor of the lateness, and resets per reading.
type Effect = fn(u64) -> (f64, f64);

fn held_back(share: &str) -> HeldBackRule {
    let holdback = share.parse().unwrap();
    let rules = vec![Rule {
        holdback,
        ..Rule::default()
    }];
    let policy = Policy {
        rules,
        ..Policy::default()
    };
    Holdbacks::new(&policy).rules.remove(0)
}

/// Runs for this many readings; returns the rule, and the time of its withdrawal in seconds. A
/// reading replaces one in two hundred connections.
fn run(seed: u64, share: &str, count: usize, readings: u64, effect: Effect) -> (HeldBackRule, u64) {
    let rng = &mut seeded_rng(seed);
    let mut rule = held_back(share);
    let holdback = Holdback::from_ppm(rule.comparison.holdback_ppm);
    let mut all: Vec<_> = (0..count).map(|_| Connection::new(rng)).collect();
    let key = [rng.random(), rng.random()];
    for reading in 1..=readings {
        let time_s = reading * READ_INTERVAL.as_secs();
        let (bundled, reset) = effect(time_s);
        for connection in &mut all {
            if rng.random_bool(0.005) {
                *connection = Connection::new(rng);
            }
            let arm = holdback.arm_of(connection.hash);
            rule.add(
                connection.hash,
                arm,
                connection.send(arm, bundled, reset, rng),
            );
        }
        rule.window_ms += READ_INTERVAL.as_millis() as u64;
        rule.analyse_if_due(key);
        if rule.comparison.is_withdrawn() {
            return (rule, time_s);
        }
    }
    (rule, 0)
}

#[test]
fn withdrawals_without_difference_are_at_most_5_percent() {
    const RUNS: u64 = 200;
    for (share, count) in [("5%", 200), ("50%", 40)] {
        let runs = (0..RUNS).map(|seed| run(seed, share, count, 120, |_| (1.0, 0.0)));
        let all: Vec<_> = runs.collect();
        let windows = all.iter().map(|(rule, _)| rule.comparison.windows).max();
        let wrong = all.iter().filter(|(_, time_s)| *time_s > 0).count();
        println!(
            "{share}: {wrong} of {RUNS} holdbacks without a difference withdrew bundling, within \
             {} windows",
            windows.unwrap()
        );
        // 5 % are allowed. At that rate, 16 or more of 200 occur with a probability of 4 %.
        assert!(wrong < 16 && windows.unwrap() >= 15, "{share}: {wrong}");
    }
}

#[test]
fn path_that_turns_harmful_withdraws_bundling() {
    let turning: [Effect; 2] = [
        |time_s| (if time_s <= 600 { 1.0 } else { 4.0 }, 0.0),
        |time_s| (1.0, if time_s <= 600 { 0.0 } else { 0.05 }),
    ];
    for (what, effect) in ["lateness", "resets"].into_iter().zip(turning) {
        let times = (0..10).map(|seed| run(seed, "10%", 2_000, 120, effect).1);
        let mut times: Vec<_> = times.collect();
        times.sort_unstable();
        let [median, last] = [5, 9].map(|index| times[index]);
        println!("{what}: withdrawn after {median} s (median), {last} s (last of 10)");
        let right = times
            .iter()
            .filter(|time_s| (601..=1_200).contains(*time_s));
        assert!(right.count() >= 9, "{what}: {times:?}");
    }
}

#[test]
fn lasting_benefit_is_shown_and_not_withdrawn() {
    for seed in 0..3 {
        let (rule, withdrawn_s) = run(seed, "10%", 2_000, 12, |_| (0.2, 0.0));
        let comparison = &rule.comparison;
        assert_eq!((withdrawn_s, comparison.verdict()), (0, Verdict::Helps));
        let line = comparison.to_string();
        let start = "holdback 10% of rule 1: bundling helps; lateness in ms: ";
        assert!(line.starts_with(start), "{line}");
    }
}

/// After a month, a window needs much more evidence than the first one.
#[test]
fn old_rule_can_still_be_withdrawn() {
    let mut rule = held_back("10%");
    (rule.comparison.observed_ms, rule.comparison.windows) = (4 * WINDOW_MS[1], 52);
    let rng = &mut seeded_rng(1);
    for _ in 0..2_000 {
        let connection = Connection::new(rng);
        let arm = Holdback::from_ppm(rule.comparison.holdback_ppm).arm_of(connection.hash);
        let sent = (0..50).map(|_| connection.send(arm, 5.0, 0.0, rng));
        sent.for_each(|counts| rule.add(connection.hash, arm, counts));
    }
    rule.window_ms = WINDOW_MS[1] - 1;
    assert!(
        rule.analyse_if_due([1, 2]).is_none(),
        "the window is not complete"
    );
    rule.window_ms = WINDOW_MS[1];
    let units = rule.analyse_if_due([1, 2]).unwrap();
    assert!(rule.comparison.is_withdrawn(), "{:#?}", rule.comparison);
    let mut width = |windows| {
        rule.comparison.windows = windows;
        rule.comparison.estimate(&units, 2);
        let (low, high) = rule
            .comparison
            .difference_late_ms
            .unwrap()
            .interval
            .unwrap();
        high - low
    };
    assert!(width(53) > 1.8 * width(1), "the windows before count");
}

/// An analysis by which bundling is withdrawn.
const HARM: InterimAnalysis = InterimAnalysis {
    segments: 4_000,
    units: 20,
    chance_of_better: 1.0,
    chance_of_worse: 0.0,
    chance_of_more_cut: 1.0,
    threshold: 0.025,
};

#[test]
fn unchanged_rule_continues_under_its_new_number() {
    let rule = |port: u16, share: &str| Rule {
        source: format!("holdback = \"{share}\"\nport = {port}\n"),
        holdback: share.parse().unwrap(),
        ..Rule::all(Options::default())
    };
    let holdbacks = |rules: &[Rule]| {
        Holdbacks::new(&Policy {
            rules: rules.to_vec(),
            ..Policy::default()
        })
    };
    let mut old = holdbacks(&[rule(1, "5%"), rule(2, "5%"), rule(3, "0%")]);
    old.key = Some([1, 2]);
    for rule in &mut old.rules {
        rule.comparison.last_window = Some(HARM);
    }
    // A version without one of the fields, and with other built-in options.
    let mut json = serde_json::to_value(&old).unwrap();
    for rule in json["rules"].as_array_mut().unwrap() {
        let comparison = rule["comparison"].as_object_mut().unwrap();
        comparison.remove("windows").unwrap();
    }
    let handed_over = serde_json::from_value(json).unwrap();
    for old in [old, handed_over] {
        let mut unchanged = rule(2, "5%");
        unchanged.tcp_options.nodelay = true;
        let mut new = holdbacks(&[rule(3, "0%"), rule(1, "10%"), unchanged]);
        assert_eq!(new.continue_from(&old), [3]);
        assert_eq!(new.key(), Some([1, 2]));
        let numbers = new.comparisons().map(|it| (it.rule, it.is_withdrawn()));
        assert_eq!(numbers.collect::<Vec<_>>(), [(2, false), (3, true)]);
    }
}

/// Otherwise the trial would miss connections that end.
#[test]
fn observations_of_trial_are_left_to_it() {
    let mut observing = Observing::by_holdback([1, 2]);
    for (bundled_ppm, is_due) in [(None, true), (Some(500_000), false)] {
        observing.bundled_ppm = bundled_ppm;
        let policy = Policy {
            observing: Some(observing),
            ..Policy::default()
        };
        assert_eq!(Holdbacks::new(&policy).is_due(Instant::now()), is_due);
    }
}

#[test]
fn restarted_observation_counts_from_zero() {
    let counts = |segments, connections| ArmCounts {
        connections,
        segments,
        ..ArmCounts::default()
    };
    assert_eq!(counts(7, 1).since(ArmCounts::default()), counts(7, 1));
    assert_eq!(counts(7, 1).since(counts(5, 1)), counts(2, 0));
    assert_eq!(counts(3, 1).since(counts(5, 1)), counts(3, 0));
}

#[test]
fn changed_rule_of_command_line_is_another_one() {
    let holdbacks = |port: u16| {
        let rule = Rule {
            ports: vec![port..=port],
            holdback: "5%".parse().unwrap(),
            ..Rule::all(Options::default())
        };
        Holdbacks::new(&Policy {
            rules: vec![rule],
            ..Policy::default()
        })
    };
    let mut old = holdbacks(1);
    old.rules[0].comparison.last_window = Some(HARM);
    assert_eq!(holdbacks(1).continue_from(&old), [1]);
    assert_eq!(holdbacks(2).continue_from(&old), [0; 0]);
}
