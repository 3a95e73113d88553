use super::*;
use crate::run_key::RunKey;

#[test]
fn a_value_holds_within_its_tolerance() {
    let judged = judged(&claim(Statement::Value(1000.0, 100.0)));
    assert_eq!(judged.verdict, Verdict::Near);
    let estimate = judged.today[0];
    assert_eq!((estimate.mean, estimate.runs), (1067.0, 2));
}

#[test]
fn what_holds_only_as_it_was_then_has_changed_and_the_cause_is_named() {
    let judged = judged(&claim(Statement::Value(2000.0, 100.0)));
    assert_eq!(judged.verdict, Verdict::Changed);
    assert_eq!(judged.cause, Some(0));
}

#[test]
fn what_is_equal_in_decimal_numbers_is_equal() {
    let runs =
        |scale| (1..4).map(move |seed| run(&format!("plain,kernel=today,seed={seed}"), scale));
    let of = |statement, scale: f64| {
        let claim = Claim {
            measure: measure("lost_data_packets_share"),
            ..claim(statement)
        };
        let runs: Vec<_> = runs(scale).collect();
        claim.judge(&runs, &parts("kernel=today"), &[]).verdict
    };
    // 0.3 is less than 0.1 + 0.2 in binary, and 1 - 0.95 more than 0.05.
    assert_eq!(of(Statement::AtMost(0.3), 10.0 + 20.0), Verdict::Near);
    assert_eq!(of(Statement::AtLeast(0.1 + 0.2), 30.0), Verdict::Near);
    assert_eq!(of(Statement::Value(0.95, 0.05), 100.0), Verdict::Near);
    assert_eq!(of(Statement::AtMost(0.3), 30.1), Verdict::Miss);
}

#[test]
fn what_holds_nowhere_is_a_miss() {
    let judged = judged(&claim(Statement::Value(5000.0, 100.0)));
    assert_eq!(judged.verdict, Verdict::Miss);
}

#[test]
fn without_the_runs_there_is_no_verdict() {
    let claim = Claim {
        runs: parts("unheard-of"),
        ..claim(Statement::AtMost(1.0))
    };
    assert_eq!(judged(&claim).verdict, Verdict::NotRun);
}

#[test]
fn what_the_runs_do_not_have_is_not_measured_rather_than_not_run() {
    let mistyped = [
        Claim {
            measure: measure("ack_latency_ms mean"),
            ..claim(Statement::AtMost(1.0))
        },
        Claim {
            group: "thick".to_owned(),
            ..claim(Statement::AtMost(1.0))
        },
    ];
    for claim in mistyped {
        assert_eq!(judged(&claim).verdict, Verdict::NotMeasured, "{claim:?}");
    }
}

#[test]
fn an_order_is_of_means_and_their_intervals() {
    let order = |first: &str, next: &str| Claim {
        ascending: vec![parts(first), parts(next)],
        ..claim(Statement::Ascending)
    };
    let of = |claim: &Claim, seeds: &[f64]| {
        let plain = (1..).zip(seeds);
        let plain =
            plain.map(|(seed, scale)| run(&format!("plain,kernel=today,seed={seed}"), *scale));
        let runs: Vec<_> = plain
            .chain([run("bundled,kernel=today,seed=1", 0.5)])
            .collect();
        claim.judge(&runs, &parts("kernel=today"), &[]).verdict
    };
    let clear = [1.0, 1.01, 1.02];
    assert_eq!(of(&order("bundled", "plain"), &clear), Verdict::Near);
    assert_eq!(of(&order("plain", "bundled"), &clear), Verdict::Miss);
    assert_eq!(
        of(&order("bundled", "plain"), &[0.2, 1.0, 1.8]),
        Verdict::Undecided
    );
    assert_eq!(of(&order("bundled", "plain"), &[1.0]), Verdict::Near);
}

#[test]
fn a_bound_holds_only_with_the_interval() {
    let seeds = [0.9, 1.0, 1.1];
    let seeds = (1..).zip(seeds);
    let runs = seeds.map(|(seed, scale)| run(&format!("plain,kernel=today,seed={seed}"), scale));
    let runs: Vec<_> = runs.collect();
    for (bound, at_most, at_least) in [
        (500.0, Verdict::Miss, Verdict::Near),
        (960.0, Verdict::Undecided, Verdict::Undecided),
        (1500.0, Verdict::Near, Verdict::Miss),
    ] {
        let of = |statement| {
            claim(statement)
                .judge(&runs, &parts("kernel=today"), &[])
                .verdict
        };
        assert_eq!(of(Statement::AtMost(bound)), at_most, "{bound}");
        assert_eq!(of(Statement::AtLeast(bound)), at_least, "{bound}");
    }
}

#[test]
fn a_proportion_is_taken_seed_by_seed_and_within_the_run_where_it_can_be() {
    let to_greedy = Claim {
        measure: measure("lost_data_packets_share"),
        over_group: "greedy".to_owned(),
        ..claim(Statement::Value(0.55, 0.01))
    };
    assert_eq!(judged(&to_greedy).verdict, Verdict::Near);
    let to_bundled = Claim {
        over: Some(parts("bundled")),
        ..claim(Statement::Value(2.0, 0.01))
    };
    let judged = judged(&to_bundled);
    assert_eq!(judged.verdict, Verdict::Near);
    assert_eq!(judged.today[0].runs, 1, "seed 2 has no bundled run");
}

#[test]
fn a_proportion_is_taken_of_the_run_that_is_the_same_but_for_what_is_asked() {
    let runs = [
        run("a,players=1,kernel=today,seed=1", 1.0),
        run("a,players=2,kernel=today,seed=1", 10.0),
        run("b,players=1,kernel=today,seed=1", 2.0),
        run("b,players=2,kernel=today,seed=1", 20.0),
    ];
    let claim = Claim {
        runs: parts("b"),
        over: Some(parts("a")),
        ..claim(Statement::Value(2.0, 0.01))
    };
    let judged = claim.judge(&runs, &parts("kernel=today"), &[]);
    assert_eq!(judged.verdict, Verdict::Near, "{judged:?}");
}

#[test]
fn a_proportion_may_be_to_another_measure_of_the_same_run() {
    let claim = Claim {
        over: Some(parts("plain")),
        over_measure: Some(measure("ack_latency_ms p50")),
        ..claim(Statement::Value(1.94, 0.001))
    };
    assert_eq!(judged(&claim).verdict, Verdict::Near);
}

#[test]
fn a_proportion_to_nothing_is_no_value() {
    let claim = Claim {
        measure: measure("lost_data_packets_share"),
        over: Some(parts("none")),
        ..claim(Statement::AtLeast(1.0))
    };
    let seed_1 = |name, scale| run(&format!("{name},kernel=today,seed=1"), scale);
    for scale in [0.0, 1.0] {
        let runs = [seed_1("plain", scale), seed_1("none", 0.0)];
        let judged = claim.judge(&runs, &parts("kernel=today"), &[]);
        assert_eq!(judged.verdict, Verdict::NotMeasured, "{judged:?}");
    }
}

#[test]
fn where_seeds_are_missing_a_single_one_decides_nothing() {
    let row = |missing: &[&str]| Row {
        published: published(
            "",
            "",
            vec![claim(Statement::AtMost(1e9)), claim(Statement::AtMost(1.0))],
        ),
        runs: vec![run("plain,kernel=today,seed=1", 1.0)],
        missing: missing.iter().map(|it| (*it).into()).collect(),
        ..Row::default()
    };
    let verdicts = |row: Row| {
        row.judged()
            .iter()
            .map(|(_, it)| it.verdict)
            .collect::<Vec<_>>()
    };
    let whole = row(&[]);
    assert_eq!(verdicts(whole), [Verdict::Near, Verdict::Miss]);
    let lacks = row(&["plain,kernel=today,seed=2"]);
    let told: Vec<_> = lacks.doubts().map(|(why, _)| why.to_owned()).collect();
    assert!(told[0].starts_with("they are not there"), "{told:?}");
    assert_eq!(verdicts(lacks), [Verdict::Undecided; 2]);
    let elsewhere = row(&["bundled,kernel=today,seed=1"]);
    assert_eq!(verdicts(elsewhere), [Verdict::Near, Verdict::Miss]);
}

#[test]
fn where_seeds_of_what_it_is_compared_with_are_missing_a_single_one_decides_nothing() {
    let compared = |over, minus| Claim {
        over,
        minus,
        ..claim(Statement::AtLeast(1.0))
    };
    let base = || Some(parts("bundled"));
    let other = "bundled,kernel=today,seed=2";
    for (is_there, expected) in [(false, Verdict::Undecided), (true, Verdict::Near)] {
        let mut there = close_runs();
        let mut missing = Vec::new();
        match is_there {
            true => there.push(run(other, 0.5505)),
            false => missing.push(RunKey::from(other)),
        }
        let row = Row {
            published: published("", "", vec![compared(base(), None), compared(None, base())]),
            runs: there,
            missing,
            ..Row::default()
        };
        let verdicts: Vec<_> = row.judged().iter().map(|(_, it)| it.verdict).collect();
        assert_eq!(verdicts, [expected; 2]);
    }
}

#[test]
fn only_what_decides_needs_more_than_one_seed() {
    let judged = |most: f64, then: &[(u32, f64)]| {
        let of_then = then
            .iter()
            .map(|(seed, scale)| run(&format!("plain,kernel=then,seed={seed}"), *scale));
        let row = Row {
            published: published("kernel=then", "old", vec![claim(Statement::AtMost(most))]),
            runs: close_runs().into_iter().take(2).chain(of_then).collect(),
            missing: vec!["plain,kernel=then,seed=3".into()],
            ..Row::default()
        };
        row.judged()[0].1.verdict
    };
    assert_eq!(judged(2000.0, &[(1, 1.0)]), Verdict::Near, "holds today");
    assert_eq!(judged(500.0, &[(1, 0.1)]), Verdict::Undecided);
    assert_eq!(judged(500.0, &[(1, 0.1), (2, 0.101)]), Verdict::Changed);
    assert_eq!(judged(500.0, &[(1, 9.0)]), Verdict::Undecided);
    assert_eq!(judged(500.0, &[(1, 9.0), (2, 9.001)]), Verdict::Miss);
}

#[test]
fn of_several_seeds_the_only_one_that_has_a_measure_decides_nothing() {
    let mut runs = close_runs();
    let of_two = runs[1].digest.groups.get_mut("thin").unwrap();
    of_two.distributions.clear();
    let row = Row {
        published: published("", "", vec![claim(Statement::AtMost(1e9))]),
        runs,
        ..Row::default()
    };
    let (_, judged) = &row.judged()[0];
    assert_eq!((judged.verdict, judged.without), (Verdict::Undecided, 1));
}

#[test]
fn a_cause_that_has_no_such_measure_was_run_all_the_same() {
    let mut runs = close_runs();
    runs[3].digest.groups.clear();
    let claim = claim(Statement::AtMost(500.0));
    let judged = claim.judge(&runs, &parts("kernel=today"), &[parts("kernel=then")]);
    assert_eq!(judged.verdict, Verdict::Miss);
}

#[test]
fn runs_of_which_no_two_belong_together_were_not_made() {
    let runs = [
        run("plain,kernel=today,seed=1", 1.0),
        run("bundled,kernel=today,seed=2", 1.0),
    ];
    let claim = Claim {
        over: Some(parts("bundled")),
        ..claim(Statement::AtMost(1.0))
    };
    let judged = claim.judge(&runs, &parts("kernel=today"), &[]);
    assert_eq!(judged.verdict, Verdict::NotRun);
}

#[test]
fn what_does_not_hold_is_no_miss_before_all_causes_were_run() {
    let claim = claim(Statement::Value(5000.0, 100.0));
    let causes = [parts("kernel=then"), parts("kernel=before")];
    let judged = claim.judge(&runs(), &parts("kernel=today"), &causes);
    assert_eq!(judged.verdict, Verdict::NotRun);
    assert!(!judged.today.is_empty());
}

#[test]
fn what_is_undecided_for_a_causes_sake_names_the_cause() {
    let runs = [
        run("plain,kernel=today,seed=1", 2.0),
        run("plain,kernel=before,seed=1", 3.0),
        run("plain,kernel=then,seed=1", 0.9),
        run("plain,kernel=then,seed=2", 1.1),
    ];
    let causes = [parts("kernel=before"), parts("kernel=then")];
    let claim = claim(Statement::AtMost(960.0));
    let judged = claim.judge(&runs, &parts("kernel=today"), &causes);
    assert_eq!(
        (judged.verdict, judged.cause),
        (Verdict::Undecided, Some(1))
    );
    let judged = claim.judge(&runs, &parts("kernel=then"), &causes);
    assert_eq!((judged.verdict, judged.cause), (Verdict::Undecided, None));
}

#[test]
fn a_difference_is_taken_of_the_same_seed() {
    let less = Claim {
        minus: Some(parts("bundled")),
        ..claim(Statement::Value(533.0, 0.1))
    };
    let judged = judged(&less);
    assert_eq!(judged.verdict, Verdict::Near, "{judged:?}");
    assert_eq!(judged.today[0].runs, 1, "seed 2 has no bundled run");
}

#[test]
fn a_measure_may_ask_for_the_share_above_a_bound() {
    let group = &run("any", 1.0).digest.groups["thin"];
    let share = group.named("ack_latency_ms above 900").unwrap();
    assert!((share - 0.1).abs() < 1.5e-3, "{share}");
    assert_eq!(group.named("ack_latency_ms above 2000"), Some(0.0));
    assert_eq!(group.named("ack_latency_ms p50"), Some(500.0));
    assert_eq!(group.named("itt_ms p50"), None);
}

#[test]
fn a_value_that_chance_may_have_outside_its_tolerance_is_undecided() {
    let runs = |scales: [f64; 3]| -> Vec<DigestedRun> {
        let seeds = scales.into_iter().zip(1..);
        let run = |(scale, seed)| run(&format!("plain,kernel=today,seed={seed}"), scale);
        seeds.map(run).collect()
    };
    let of = |scales, within| {
        let claim = claim(Statement::Value(970.0, within));
        let judged = claim.judge(&runs(scales), &parts("kernel=today"), &[]);
        (judged.verdict, judged.today[0].half.unwrap())
    };
    // Half of the interval is 2.48 deviations of 97.
    let wide = [0.9, 1.0, 1.1];
    assert!((of(wide, 100.0).1 - 241.0).abs() < 1.0);
    assert_eq!(
        of(wide, 100.0).0,
        Verdict::Undecided,
        "wider than the tolerance"
    );
    assert_eq!(of(wide, 250.0).0, Verdict::Near);
    assert_eq!(
        of([1.9, 2.0, 2.1], 100.0).0,
        Verdict::Miss,
        "far off in any case"
    );
    assert_eq!(of([1.2, 1.3, 1.4], 100.0).0, Verdict::Undecided);
    assert_eq!(
        of([1.14, 1.15, 1.16], 100.0).0,
        Verdict::Miss,
        "by its mean"
    );
}

#[test]
fn what_is_undecided_today_and_holds_as_it_was_names_the_cause() {
    let claim = claim(Statement::AtMost(1000.0));
    let mut runs = runs();
    runs.push(run("plain,kernel=before,seed=1", 0.5));
    let causes = [parts("kernel=then"), parts("kernel=before")];
    let judged = claim.judge(&runs, &parts("kernel=today"), &causes);
    assert_eq!(
        (judged.verdict, judged.cause),
        (Verdict::Undecided, Some(1))
    );
    assert_eq!(judged.holds, [Some(false), Some(true)]);
}

#[test]
fn the_cause_that_explains_most_explains_what_several_do() {
    let runs = vec![
        run("plain,kernel=today,seed=1", 1.0),
        run("plain,kernel=by-chance,seed=1", 2.0),
        run("plain,kernel=then,seed=1", 2.05),
    ];
    let causes = ["kernel=by-chance", "kernel=then"];
    let causes = causes.map(|it| Cause {
        runs: parts(it),
        is: it.to_owned(),
    });
    let claims = |values: &[f64]| {
        let claims = values.iter();
        claims
            .map(|value| claim(Statement::Value(*value, 30.0)))
            .collect()
    };
    let row = |values: &[f64]| Row {
        published: Reproduction {
            causes: causes.to_vec(),
            ..published("", "", claims(values))
        },
        runs: runs.clone(),
        ..Row::default()
    };
    let explained = |row: Row| -> Vec<_> { row.judged().iter().map(|(_, it)| it.cause).collect() };
    assert_eq!(explained(row(&[1965.0])), [Some(0)], "the first of equals");
    assert_eq!(
        explained(row(&[1965.0, 2000.0, 1000.0])),
        [Some(1), Some(1), None]
    );
}

#[test]
fn of_a_miss_the_cause_that_comes_nearest_is_shown() {
    let shown = |statement| {
        let claim = claim(statement);
        let runs = [
            run("plain,kernel=today,seed=1", 1.0),
            run("plain,kernel=then,seed=1", 2.0),
            run("plain,kernel=before,seed=1", 3.0),
        ];
        let causes = [parts("kernel=then"), parts("kernel=before")];
        let judged = claim.judge(&runs, &parts("kernel=today"), &causes);
        (judged.verdict, claim.shown_cause(&judged))
    };
    assert_eq!(shown(Statement::Value(5000.0, 1.0)), (Verdict::Miss, 1));
    assert_eq!(shown(Statement::AtMost(10.0)), (Verdict::Miss, 0));
    assert_eq!(shown(Statement::AtLeast(1e4)), (Verdict::Miss, 1));
    assert_eq!(shown(Statement::Value(970.0, 1.0)), (Verdict::Near, 0));
}

#[test]
fn runs_that_have_nothing_of_it_are_counted() {
    let ratio = Claim {
        over: Some(parts("bundled")),
        ..claim(Statement::AtLeast(1.0))
    };
    assert_eq!(
        judged(&ratio).without,
        1,
        "of seed 2 there is no bundled run"
    );
    assert_eq!(judged(&claim(Statement::AtLeast(1.0))).without, 0);
}
