// The documentation quotes the printed lines.
#![allow(clippy::print_stdout)]

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Exp, LogNormal};

use super::*;

/// A peer with its own path.
struct Peer {
    arm: Arm,
    /// Location of the log-normal lateness in microseconds; `None` for paths without loss.
    late_us: Option<f64>,
    summary: Summary,
}

/// Runs a trial with peers that arrive one after another and differ as those of a server do.
/// Bundles multiply the lateness by `bundled_share`.
fn run_trial(seed: u64, rounds: u32, bundled_share: f64) -> Verdict {
    let rng = &mut seeded_rng(seed);
    let mut trial = Trial::new(TrialState::new(
        Setting::example(),
        [rng.random(), rng.random()],
    ));
    let mut peers: Vec<Peer> = Vec::new();
    for _ in 0..rounds {
        for _ in 0..4 {
            let lossy = rng.random_bool(0.5);
            let path = LogNormal::new(9.0, 1.0).unwrap().sample(rng);
            peers.push(Peer {
                arm: [Arm::Bundled, Arm::Plain][rng.random_range(0..2)],
                late_us: lossy.then_some(path),
                summary: Summary::default(),
            });
        }
        peers
            .iter_mut()
            .for_each(|peer| peer.send(bundled_share, rng));
        trial.present = (0..)
            .zip(&peers)
            .map(|(unit, peer)| {
                let Peer { arm, summary, .. } = peer;
                let summary = summary.clone();
                (unit, Unit { arm: *arm, summary })
            })
            .collect();
        trial.analyse_if_due(false);
        if trial.verdict() != Verdict::Undecided {
            break;
        }
    }
    trial.verdict()
}

impl Peer {
    fn send(&mut self, bundled_share: f64, rng: &mut impl Rng) {
        let segments = rng.random_range(10..100);
        self.summary.segments += segments;
        let Some(mean) = self.late_us else { return };
        let share = match self.arm {
            Arm::Bundled => bundled_share,
            Arm::Plain => 1.0,
        };
        let heavy_tail = LogNormal::new(0.0, 1.5).unwrap();
        let late = (0..segments).filter(|_| rng.random_bool(0.02)).count();
        let late_us: f64 = (0..late)
            .map(|_| heavy_tail.sample(rng) * mean * share)
            .sum();
        self.summary.late_us += late_us as u64;
    }
}

#[test]
fn trials_without_difference_rarely_find_one() {
    let wrong = (0..200)
        .filter(|seed| run_trial(*seed, 30, 1.0) != Verdict::Undecided)
        .count();
    println!("{wrong} of 200 trials without a difference found one");
    // 5 % are allowed. At that rate, 16 or more of 200 occur with a probability of 4 %.
    assert!(wrong < 16, "{wrong} of 200");
}

#[test]
fn trials_find_true_benefit_and_harm() {
    for (bundled_share, expected) in [(0.2, Verdict::Helps), (5.0, Verdict::Harms)] {
        let verdicts: Vec<_> = (0..10)
            .map(|seed| run_trial(seed, 80, bundled_share))
            .collect();
        let right = verdicts
            .iter()
            .filter(|verdict| **verdict == expected)
            .count();
        assert!(right >= 9, "{expected:?}: {verdicts:?}");
    }
}

/// Returns true if the difference of the waits excludes the true one, 0, at one of five analyses.
fn misses_true_difference(seed: u64) -> bool {
    let rng = &mut seeded_rng(seed);
    let mut trial = Trial::new(TrialState::new(Setting::example(), [seed; 2]));
    let wait_us = Exp::new(1e-6).unwrap();
    trial.present = (0..64)
        .map(|unit| {
            let arm = [Arm::Bundled, Arm::Plain][(unit % 2) as usize];
            let summary = Summary::default();
            (unit, Unit { arm, summary })
        })
        .collect();
    let mut misses = || {
        while trial.analyse_if_due(false).is_none() {
            for (_, Unit { summary, .. }) in &mut trial.present {
                summary.segments += 16;
                (summary.sent, summary.new_bytes) = (summary.segments, summary.segments);
                summary.waited_byte_us += wait_us.sample(rng) as u64;
            }
        }
        let difference = trial.results().measures[0].difference.unwrap();
        let (low, high) = difference.interval.unwrap();
        low > 0.0 || high < 0.0
    };
    (0..5).any(|_| misses())
}

#[test]
fn difference_holds_at_all_analyses_together() {
    let wrong = (0..40).filter(|seed| misses_true_difference(*seed)).count();
    println!("{wrong} of 40 trials missed the true difference at one of five analyses");
    // 5 % are allowed.
    assert!(wrong <= 3, "{wrong} of 40");
}

/// Runs a trial with connection resets, at these rates per million segments in either arm.
fn run_trial_with_resets(seed: u64, rounds: u32, [bundled, plain]: [u32; 2]) -> Verdict {
    let rng = &mut seeded_rng(seed);
    let key = [rng.random(), rng.random()];
    let mut trial = Trial::new(TrialState::new(Setting::example(), key));
    for _ in 0..rounds {
        for _ in 0..4 {
            let (arm, ppm) = [(Arm::Bundled, bundled), (Arm::Plain, plain)][rng.random_range(0..2)];
            let mut summary = Summary::default();
            for _ in 0..rng.random_range(20..200) {
                summary.sent += 1;
                if rng.random_bool(f64::from(ppm) / 1e6) {
                    summary.cut += 1;
                    break;
                }
                summary.segments += 1;
            }
            let unit = trial.present.len() as u64;
            trial.present.push((unit, Unit { arm, summary }));
        }
        trial.analyse_if_due(false);
        if trial.verdict() != Verdict::Undecided {
            break;
        }
    }
    trial.verdict()
}

#[test]
fn connection_resets_count_as_harm_without_lateness() {
    for bundled in [20_000, 500_000] {
        let verdicts = (0..10).map(|seed| run_trial_with_resets(seed, 200, [bundled, 5_000]));
        let verdicts: Vec<_> = verdicts.collect();
        let right = verdicts.iter().filter(|it| **it == Verdict::Harms);
        assert!(right.count() >= 9, "{bundled}: {verdicts:?}");
    }
    let wrong = (0..200)
        .filter(|seed| run_trial_with_resets(*seed, 60, [5_000; 2]) != Verdict::Undecided)
        .count();
    println!("{wrong} of 200 trials in which both arms were cut short alike found a difference");
    assert!(wrong < 16, "{wrong} of 200");
}

#[test]
fn few_units_allow_no_interim_analysis() {
    let mut trial = Trial::new(TrialState::new(Setting::example(), [1, 2]));
    let unit = |unit: u64| {
        let arm = [Arm::Bundled, Arm::Plain][usize::from(unit.is_multiple_of(2))];
        let summary = Summary {
            segments: 1_000_000,
            late_us: 7 * unit,
            ..Summary::default()
        };
        (unit, Unit { arm, summary })
    };
    trial.present = (0..8).map(unit).collect();
    assert!(trial.analyse_if_due(false).is_none() && trial.analyse_if_due(true).is_none());
    trial.present = (0..10).map(unit).collect();
    assert!(trial.analyse_if_due(false).is_some());
    assert!(
        trial.analyse_if_due(false).is_none(),
        "analysis without new segments"
    );
    assert!(
        trial.analyse_if_due(true).is_none(),
        "last analysis without new segments"
    );
}

#[test]
fn accepted_shares_allow_an_interim_analysis() {
    let ends = [*SHARE_RANGE_PPM.start(), *SHARE_RANGE_PPM.end()];
    for ppm in ends.into_iter().flat_map(|end| [end - 1, end, end + 1]) {
        let allows_analysis = min_units(ppm) <= MAX_UNITS as u64;
        assert_eq!(allows_analysis, SHARE_RANGE_PPM.contains(&ppm), "{ppm}");
    }
}

#[test]
fn analysis_time_does_not_depend_on_assignment() {
    let mut trial = Trial::new(TrialState::new(Setting::example(), [1, 2]));
    let unit = |unit: u64| {
        let summary = Summary {
            segments: 1000,
            late_us: 7 * unit,
            ..Summary::default()
        };
        let arm = Arm::Plain;
        (unit, Unit { arm, summary })
    };
    trial.present = (0..10).map(unit).collect();
    let analysis = trial.analyse_if_due(false).unwrap();
    assert_eq!(
        (analysis.chance_of_better, analysis.chance_of_worse),
        (1.0, 1.0)
    );
    assert!(!analysis.is_cut_clear());
    assert_eq!(trial.verdict(), Verdict::Undecided);
}

#[test]
fn trial_finishes_at_its_duration() {
    let setting = Setting {
        duration_ms: Some(5_000),
        ..Setting::example()
    };
    let mut trial = Trial::new(TrialState::new(setting, [1, 2]));
    trial.set_observed_ms(4_999);
    assert!(!trial.is_finished());
    trial.set_observed_ms(5_000);
    assert!(trial.is_finished());
    let mut endless = Trial::new(TrialState::new(Setting::example(), [1, 2]));
    endless.set_observed_ms(u64::MAX);
    assert!(!endless.is_finished());
}

/// Port scanners accept the greeting and reset the connection, each from its own address.
#[test]
fn port_scanners_do_not_displace_lasting_units() {
    let mut state = TrialState::new(Setting::example(), [1, 2]);
    for number in 0..MAX_UNITS as u64 {
        let arm = [Arm::Bundled, Arm::Plain][usize::from(number.is_multiple_of(2))];
        let summary = Summary {
            sent: 1,
            cut: 1,
            ..Summary::default()
        };
        state.add(number, &Unit { arm, summary }, MAX_UNITS);
    }
    let summary = Summary {
        sent: 10_000,
        segments: 10_000,
        ..Summary::default()
    };
    let player = MAX_UNITS as u64;
    state.free_slots([player].into_iter(), MAX_UNITS);
    let arm = Arm::Plain;
    state.add(player, &Unit { arm, summary }, MAX_UNITS);
    assert!(state.units.contains_key(&player));
}

#[test]
fn maximum_counts_do_not_overflow() {
    let full_unit = |arm| Unit {
        arm,
        summary: Summary {
            segments: u64::MAX,
            late_us: u64::MAX,
            after_timeout: u64::MAX,
            fast: u64::MAX,
            sent: u64::MAX,
            latencies: vec![(0, u64::MAX), (9, u64::MAX)].into(),
            ..Summary::default()
        },
    };
    let mut state = TrialState::new(Setting::example(), [1, 2]);
    state.left_out = u64::MAX;
    let arms = [Arm::Bundled, Arm::Plain].into_iter().cycle();
    state.units = (0..20).zip(arms.map(full_unit)).collect();
    state.interim_analyses.push(InterimAnalysis {
        segments: u64::MAX,
        units: 20,
        chance_of_better: 0.5,
        chance_of_worse: 0.5,
        chance_of_more_cut: 0.5,
        threshold: 0.01,
    });
    let mut trial = Trial::new(state);
    trial.analyse_if_due(false);
    let results = trial.results();
    assert_eq!(results.bundled.summary.segments, u64::MAX);
    let measures = results.measures.iter();
    let values = measures
        .filter_map(|it| it.bundled.as_ref())
        .map(|it| it.value);
    assert!(values.clone().count() > 4);
    assert!(values.into_iter().all(f64::is_finite));
}
