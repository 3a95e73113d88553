// The documentation names what these print.
#![allow(clippy::print_stdout)]

use rand::{Rng, RngExt};
use rand_distr::{Distribution, LogNormal};

use super::*;

/// A peer as its connections fare on a path that is its own.
struct Peer {
    arm: Arm,
    /// Mean of the exponent: some paths lose nothing at all.
    late_us: Option<f64>,
    summary: Summary,
}

/// Goes on with peers that come one after another, and that are as different as those of a
/// server are, looking whenever it is time; with bundles, what is late is late by so much of
/// what it would be.
fn play(seed: u64, rounds: u32, bundled_share: f64) -> Verdict {
    let random = &mut generator(seed);
    let mut trial = Trial::new(Record::new(
        Setting::example(),
        [random.random(), random.random()],
    ));
    let mut peers: Vec<Peer> = Vec::new();
    for _ in 0..rounds {
        for _ in 0..4 {
            let lossy = random.random_bool(0.5);
            let path = LogNormal::new(9.0, 1.0).unwrap().sample(random);
            peers.push(Peer {
                arm: [Arm::Bundled, Arm::Plain][random.random_range(0..2)],
                late_us: lossy.then_some(path),
                summary: Summary::default(),
            });
        }
        peers
            .iter_mut()
            .for_each(|peer| peer.send(bundled_share, random));
        trial.present = (0..)
            .zip(&peers)
            .map(|(unit, peer)| {
                let Peer { arm, summary, .. } = peer;
                let summary = summary.clone();
                (unit, Unit { arm: *arm, summary })
            })
            .collect();
        trial.look(false);
        if trial.verdict() != Verdict::Undecided {
            break;
        }
    }
    trial.verdict()
}

impl Peer {
    fn send(&mut self, bundled_share: f64, random: &mut impl Rng) {
        let segments = random.random_range(10..100);
        self.summary.segments += segments;
        let Some(mean) = self.late_us else { return };
        let share = match self.arm {
            Arm::Bundled => bundled_share,
            Arm::Plain => 1.0,
        };
        let heavy = LogNormal::new(0.0, 1.5).unwrap();
        let late = (0..segments).filter(|_| random.random_bool(0.02)).count();
        let late_us: f64 = (0..late).map(|_| heavy.sample(random) * mean * share).sum();
        self.summary.late_us += late_us as u64;
    }
}

#[test]
fn where_there_is_no_difference_few_trials_find_one() {
    let wrong = (0..200)
        .filter(|seed| play(*seed, 30, 1.0) != Verdict::Undecided)
        .count();
    println!("{wrong} of 200 trials without a difference found one");
    // At most 5 % of all; of 200, 16 or more come about in 4 of 100 cases at that rate.
    assert!(wrong < 16, "{wrong} of 200");
}

#[test]
fn a_true_difference_is_found_and_so_is_harm() {
    for (bundled_share, truth) in [(0.2, Verdict::Helps), (5.0, Verdict::Harms)] {
        let verdicts: Vec<_> = (0..10).map(|seed| play(seed, 80, bundled_share)).collect();
        let right = verdicts.iter().filter(|verdict| **verdict == truth).count();
        assert!(right >= 9, "{truth:?}: {verdicts:?}");
    }
}

/// What cuts a connection short in either arm, in a million of its segments.
fn play_cutting(seed: u64, rounds: u32, [bundled, plain]: [u32; 2]) -> Verdict {
    let random = &mut generator(seed);
    let key = [random.random(), random.random()];
    let mut trial = Trial::new(Record::new(Setting::example(), key));
    for _ in 0..rounds {
        for _ in 0..4 {
            let (arm, ppm) =
                [(Arm::Bundled, bundled), (Arm::Plain, plain)][random.random_range(0..2)];
            let mut summary = Summary::default();
            for _ in 0..random.random_range(20..200) {
                summary.sent += 1;
                if random.random_bool(f64::from(ppm) / 1e6) {
                    summary.cut += 1;
                    break;
                }
                summary.segments += 1;
            }
            let unit = trial.present.len() as u64;
            trial.present.push((unit, Unit { arm, summary }));
        }
        trial.look(false);
        if trial.verdict() != Verdict::Undecided {
            break;
        }
    }
    trial.verdict()
}

#[test]
fn what_cuts_connections_short_harms_though_nothing_is_late() {
    for bundled in [20_000, 500_000] {
        let verdicts = (0..10).map(|seed| play_cutting(seed, 200, [bundled, 5_000]));
        let verdicts: Vec<_> = verdicts.collect();
        let right = verdicts.iter().filter(|it| **it == Verdict::Harms);
        assert!(right.count() >= 9, "{bundled}: {verdicts:?}");
    }
    let wrong = (0..200)
        .filter(|seed| play_cutting(*seed, 60, [5_000; 2]) != Verdict::Undecided)
        .count();
    println!("{wrong} of 200 trials in which both arms were cut short alike found a difference");
    assert!(wrong < 16, "{wrong} of 200");
}

#[test]
fn with_few_units_no_look_is_taken() {
    let mut trial = Trial::new(Record::new(Setting::example(), [1, 2]));
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
    assert!(trial.look(false).is_none() && trial.look(true).is_none());
    trial.present = (0..10).map(unit).collect();
    assert!(trial.look(false).is_some());
    assert!(
        trial.look(false).is_none(),
        "no more segments, no more looks"
    );
    assert!(trial.look(true).is_none(), "nor a last one");
}

#[test]
fn no_share_is_taken_with_which_no_look_could_come() {
    let ends = [*SHARES_PPM.start(), *SHARES_PPM.end()];
    for ppm in ends.into_iter().flat_map(|end| [end - 1, end, end + 1]) {
        let looks = fewest_units(ppm) <= MOST_UNITS as u64;
        assert_eq!(looks, SHARES_PPM.contains(&ppm), "{ppm}");
    }
}

#[test]
fn when_it_is_looked_does_not_depend_on_the_draw() {
    let mut trial = Trial::new(Record::new(Setting::example(), [1, 2]));
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
    let look = trial.look(false).unwrap();
    assert_eq!((look.chance_of_better, look.chance_of_worse), (1.0, 1.0));
    assert!(!look.cuts());
    assert_eq!(trial.verdict(), Verdict::Undecided);
}

#[test]
fn a_trial_is_over_once_its_time_is() {
    let setting = Setting {
        duration_ms: Some(5_000),
        ..Setting::example()
    };
    let mut trial = Trial::new(Record::new(setting, [1, 2]));
    trial.has_observed(4_999);
    assert!(!trial.is_over());
    trial.has_observed(5_000);
    assert!(trial.is_over());
    let mut endless = Trial::new(Record::new(Setting::example(), [1, 2]));
    endless.has_observed(u64::MAX);
    assert!(!endless.is_over());
}

/// Who scans a port takes the greeting and resets the connection, each from an address of its own.
#[test]
fn who_scans_takes_no_place_from_who_stays() {
    let mut record = Record::new(Setting::example(), [1, 2]);
    for number in 0..MOST_UNITS as u64 {
        let arm = [Arm::Bundled, Arm::Plain][usize::from(number.is_multiple_of(2))];
        let summary = Summary {
            sent: 1,
            cut: 1,
            ..Summary::default()
        };
        record.add(number, &Unit { arm, summary }, MOST_UNITS);
    }
    let summary = Summary {
        sent: 10_000,
        segments: 10_000,
        ..Summary::default()
    };
    let player = MOST_UNITS as u64;
    record.make_room([player].into_iter(), MOST_UNITS);
    let arm = Arm::Plain;
    record.add(player, &Unit { arm, summary }, MOST_UNITS);
    assert!(record.units.contains_key(&player));
}

#[test]
fn numbers_that_no_trial_comes_to_break_nothing() {
    let most = |arm| Unit {
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
    let mut record = Record::new(Setting::example(), [1, 2]);
    record.left_out = u64::MAX;
    let arms = [Arm::Bundled, Arm::Plain].into_iter().cycle();
    record.units = (0..20).zip(arms.map(most)).collect();
    record.looks.push(Look {
        segments: u64::MAX,
        units: 20,
        chance_of_better: 0.5,
        chance_of_worse: 0.5,
        chance_of_more_cut: 0.5,
        threshold: 0.01,
    });
    let mut trial = Trial::new(record);
    trial.look(false);
    let results = trial.results();
    assert_eq!(results.bundled.summary.segments, u64::MAX);
    let told = results.measures.iter();
    let values = told.filter_map(|it| it.bundled.as_ref()).map(|it| it.value);
    assert!(values.clone().count() > 4);
    assert!(values.into_iter().all(f64::is_finite));
}
