use super::*;
use crate::run_key::RunKey;

#[test]
fn value_within_tolerance_is_near() {
    let judged = judged(&claim(Statement::Value(1000.0, 100.0)));
    assert_eq!(judged.verdict, Verdict::Near);
    let estimate = judged.baseline[0];
    assert_eq!((estimate.mean, estimate.runs), (1067.0, 2));
}

#[test]
fn claim_that_holds_only_with_cause_is_changed() {
    let judged = judged(&claim(Statement::Value(2000.0, 100.0)));
    assert_eq!(judged.verdict, Verdict::Changed);
    assert_eq!(judged.cause, Some(0));
}

#[test]
fn undocumented_cause_is_a_hypothesis() {
    let guess = |runs| Cause {
        source: String::new(),
        ..cause(runs)
    };
    let claim = claim(Statement::Value(2000.0, 100.0));
    let judge = |causes: &[Cause]| {
        let judged = claim.judge(&close_runs(), &parts("kernel=current"), causes);
        (judged.verdict, judged.cause)
    };
    assert_eq!(
        judge(&[guess("kernel=old")]),
        (Verdict::Hypothesis, Some(0))
    );
    let both = [guess("kernel=old"), cause("kernel=old")];
    assert_eq!(
        judge(&both),
        (Verdict::Changed, Some(1)),
        "the documented one decides"
    );
}

#[test]
fn claim_that_holds_in_other_case_is_a_self_check() {
    let kind = |against: Against, statement| {
        let claim = Claim {
            kind: Some(ClaimKind::Published),
            against: Some(against),
            ..claim(statement)
        };
        let result = ExperimentResult {
            reproduction: published("kernel=old", "old", vec![claim]),
            runs: close_runs(),
            ..ExperimentResult::default()
        };
        let (_, judged) = result.judged().remove(0);
        (judged.holds_in_other_case, judged.kind)
    };
    let other_runs = |text| Against {
        runs: parts(text),
        ..Against::default()
    };
    let (published, self_check) = (ClaimKind::Published, ClaimKind::SelfCheck);
    // The plain runs have 1067, the bundled ones 533.
    let bundled = || other_runs("bundled");
    let at_least = Statement::AtLeast;
    assert_eq!(kind(bundled(), at_least(900.0)), (Some(false), published));
    assert_eq!(kind(bundled(), at_least(500.0)), (Some(true), self_check));
    let old = other_runs("kernel=old");
    assert_eq!(kind(old, at_least(500.0)), (Some(true), self_check));
    let unknown = other_runs("other");
    assert_eq!(kind(unknown, at_least(900.0)), (None, published), "not run");
    assert_eq!(
        kind(bundled(), at_least(1e9)),
        (None, published),
        "a miss can fail"
    );
    let only_old = Statement::AtLeast(1500.0);
    let current = other_runs("kernel=current");
    assert_eq!(
        kind(current, only_old),
        (Some(false), published),
        "judged with the cause"
    );
    // The bundled runs exist on the current kernel only.
    assert_eq!(
        kind(bundled(), only_old),
        (Some(false), published),
        "on the current kernel"
    );
    let greedy = Against {
        group: "greedy".to_owned(),
        ..Against::default()
    };
    assert_eq!(
        kind(greedy, at_least(500.0)),
        (None, published),
        "no such measure"
    );
}

#[test]
fn decimal_equality_survives_binary_rounding() {
    let runs =
        |scale| (1..4).map(move |seed| run(&format!("plain,kernel=current,seed={seed}"), scale));
    let verdict = |statement, scale: f64| {
        let claim = Claim {
            measure: measure("lost_data_packets_share"),
            ..claim(statement)
        };
        let runs: Vec<_> = runs(scale).collect();
        claim.judge(&runs, &parts("kernel=current"), &[]).verdict
    };
    // In binary, 0.3 is less than 0.1 + 0.2, and 1 - 0.95 more than 0.05.
    assert_eq!(verdict(Statement::AtMost(0.3), 10.0 + 20.0), Verdict::Near);
    assert_eq!(verdict(Statement::AtLeast(0.1 + 0.2), 30.0), Verdict::Near);
    assert_eq!(verdict(Statement::Value(0.95, 0.05), 100.0), Verdict::Near);
    assert_eq!(verdict(Statement::AtMost(0.3), 30.1), Verdict::Miss);
}

#[test]
fn claim_that_never_holds_is_a_miss() {
    let judged = judged(&claim(Statement::Value(5000.0, 100.0)));
    assert_eq!(judged.verdict, Verdict::Miss);
}

#[test]
fn claim_without_runs_is_not_run() {
    let claim = Claim {
        runs: parts("unheard-of"),
        ..claim(Statement::AtMost(1.0))
    };
    assert_eq!(judged(&claim).verdict, Verdict::NotRun);
}

#[test]
fn missing_measure_or_group_is_not_measured() {
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
fn order_is_judged_by_means_and_intervals() {
    let order = |first: &str, next: &str| Claim {
        ascending: vec![parts(first), parts(next)],
        ..claim(Statement::Ascending)
    };
    let verdict = |claim: &Claim, seeds: &[f64]| {
        let plain = (1..).zip(seeds);
        let plain =
            plain.map(|(seed, scale)| run(&format!("plain,kernel=current,seed={seed}"), *scale));
        let runs: Vec<_> = plain
            .chain([run("bundled,kernel=current,seed=1", 0.5)])
            .collect();
        claim.judge(&runs, &parts("kernel=current"), &[]).verdict
    };
    let clear = [1.0, 1.01, 1.02];
    assert_eq!(verdict(&order("bundled", "plain"), &clear), Verdict::Near);
    assert_eq!(verdict(&order("plain", "bundled"), &clear), Verdict::Miss);
    assert_eq!(
        verdict(&order("bundled", "plain"), &[0.2, 1.0, 1.8]),
        Verdict::Undecided
    );
    assert_eq!(verdict(&order("bundled", "plain"), &[1.0]), Verdict::Near);
}

#[test]
fn bound_holds_only_with_whole_interval() {
    let seeds = [0.9, 1.0, 1.1];
    let seeds = (1..).zip(seeds);
    let runs = seeds.map(|(seed, scale)| run(&format!("plain,kernel=current,seed={seed}"), scale));
    let runs: Vec<_> = runs.collect();
    for (bound, at_most, at_least) in [
        (500.0, Verdict::Miss, Verdict::Near),
        (960.0, Verdict::Undecided, Verdict::Undecided),
        (1500.0, Verdict::Near, Verdict::Miss),
    ] {
        let verdict = |statement| {
            claim(statement)
                .judge(&runs, &parts("kernel=current"), &[])
                .verdict
        };
        assert_eq!(verdict(Statement::AtMost(bound)), at_most, "{bound}");
        assert_eq!(verdict(Statement::AtLeast(bound)), at_least, "{bound}");
    }
}

#[test]
fn ratio_is_taken_per_seed_and_within_run_if_possible() {
    let to_greedy = Claim {
        measure: measure("lost_data_packets_share"),
        ratio_to_group: "greedy".to_owned(),
        ..claim(Statement::Value(0.55, 0.01))
    };
    assert_eq!(judged(&to_greedy).verdict, Verdict::Near);
    let to_bundled = Claim {
        ratio_to: Some(parts("bundled")),
        ..claim(Statement::Value(2.0, 0.01))
    };
    let judged = judged(&to_bundled);
    assert_eq!(judged.verdict, Verdict::Near);
    assert_eq!(judged.baseline[0].runs, 1, "seed 2 has no bundled run");
}

#[test]
fn ratio_base_differs_only_in_selected_keys() {
    let runs = [
        run("a,players=1,kernel=current,seed=1", 1.0),
        run("a,players=2,kernel=current,seed=1", 10.0),
        run("b,players=1,kernel=current,seed=1", 2.0),
        run("b,players=2,kernel=current,seed=1", 20.0),
    ];
    let claim = Claim {
        runs: parts("b"),
        ratio_to: Some(parts("a")),
        ..claim(Statement::Value(2.0, 0.01))
    };
    let judged = claim.judge(&runs, &parts("kernel=current"), &[]);
    assert_eq!(judged.verdict, Verdict::Near, "{judged:?}");
}

#[test]
fn ratio_to_another_measure_of_same_run() {
    let claim = Claim {
        ratio_to: Some(parts("plain")),
        ratio_to_measure: Some(measure("ack_latency_ms p50")),
        ..claim(Statement::Value(1.94, 0.001))
    };
    assert_eq!(judged(&claim).verdict, Verdict::Near);
}

#[test]
fn ratio_to_zero_is_not_measured() {
    let claim = Claim {
        measure: measure("lost_data_packets_share"),
        ratio_to: Some(parts("none")),
        ..claim(Statement::AtLeast(1.0))
    };
    let seed_1 = |name, scale| run(&format!("{name},kernel=current,seed=1"), scale);
    for scale in [0.0, 1.0] {
        let runs = [seed_1("plain", scale), seed_1("none", 0.0)];
        let judged = claim.judge(&runs, &parts("kernel=current"), &[]);
        assert_eq!(judged.verdict, Verdict::NotMeasured, "{judged:?}");
    }
}

#[test]
fn single_seed_is_undecided_if_others_are_missing() {
    let result = |missing: &[&str]| ExperimentResult {
        reproduction: published(
            "",
            "",
            vec![claim(Statement::AtMost(1e9)), claim(Statement::AtMost(1.0))],
        ),
        runs: vec![run("plain,kernel=current,seed=1", 1.0)],
        missing: missing.iter().map(|it| (*it).into()).collect(),
        ..ExperimentResult::default()
    };
    let verdicts = |result: ExperimentResult| {
        result
            .judged()
            .iter()
            .map(|(_, it)| it.verdict)
            .collect::<Vec<_>>()
    };
    let whole = result(&[]);
    assert_eq!(verdicts(whole), [Verdict::Near, Verdict::Miss]);
    let incomplete = result(&["plain,kernel=current,seed=2"]);
    let texts: Vec<_> = incomplete
        .warnings()
        .map(|(why, _)| why.to_owned())
        .collect();
    assert!(texts[0].starts_with("these runs do not exist"), "{texts:?}");
    assert_eq!(verdicts(incomplete), [Verdict::Undecided; 2]);
    let unrelated = result(&["bundled,kernel=current,seed=1"]);
    assert_eq!(verdicts(unrelated), [Verdict::Near, Verdict::Miss]);
}

#[test]
fn single_seed_is_undecided_if_base_seeds_are_missing() {
    let compared = |ratio_to, minus| Claim {
        ratio_to,
        minus,
        ..claim(Statement::AtLeast(1.0))
    };
    let base = || Some(parts("bundled"));
    let other = "bundled,kernel=current,seed=2";
    for (exists, expected) in [(false, Verdict::Undecided), (true, Verdict::Near)] {
        let mut existing = close_runs();
        let mut missing = Vec::new();
        match exists {
            true => existing.push(run(other, 0.5505)),
            false => missing.push(RunKey::from(other)),
        }
        let result = ExperimentResult {
            reproduction: published("", "", vec![compared(base(), None), compared(None, base())]),
            runs: existing,
            missing,
            ..ExperimentResult::default()
        };
        let verdicts: Vec<_> = result.judged().iter().map(|(_, it)| it.verdict).collect();
        assert_eq!(verdicts, [expected; 2]);
    }
}

#[test]
fn only_deciding_estimate_needs_several_seeds() {
    let judged = |most: f64, old: &[(u32, f64)]| {
        let old_runs = old
            .iter()
            .map(|(seed, scale)| run(&format!("plain,kernel=old,seed={seed}"), *scale));
        let result = ExperimentResult {
            reproduction: published("kernel=old", "old", vec![claim(Statement::AtMost(most))]),
            runs: close_runs().into_iter().take(2).chain(old_runs).collect(),
            missing: vec!["plain,kernel=old,seed=3".into()],
            ..ExperimentResult::default()
        };
        result.judged()[0].1.verdict
    };
    assert_eq!(
        judged(2000.0, &[(1, 1.0)]),
        Verdict::Near,
        "holds on the current kernel"
    );
    assert_eq!(judged(500.0, &[(1, 0.1)]), Verdict::Undecided);
    assert_eq!(judged(500.0, &[(1, 0.1), (2, 0.101)]), Verdict::Changed);
    assert_eq!(judged(500.0, &[(1, 9.0)]), Verdict::Undecided);
    assert_eq!(judged(500.0, &[(1, 9.0), (2, 9.001)]), Verdict::Miss);
}

#[test]
fn single_seed_with_measure_is_undecided() {
    let mut runs = close_runs();
    let second_seed = runs[1].measures.groups.get_mut("thin").unwrap();
    second_seed.distributions.clear();
    let result = ExperimentResult {
        reproduction: published("", "", vec![claim(Statement::AtMost(1e9))]),
        runs,
        ..ExperimentResult::default()
    };
    let (_, judged) = &result.judged()[0];
    assert_eq!(
        (judged.verdict, judged.runs_without_value),
        (Verdict::Undecided, 1)
    );
}

#[test]
fn cause_without_measure_counts_as_run() {
    let mut runs = close_runs();
    runs[3].measures.groups.clear();
    let claim = claim(Statement::AtMost(500.0));
    let judged = claim.judge(&runs, &parts("kernel=current"), &[cause("kernel=old")]);
    assert_eq!(judged.verdict, Verdict::Miss);
}

#[test]
fn unpaired_runs_are_not_run() {
    let runs = [
        run("plain,kernel=current,seed=1", 1.0),
        run("bundled,kernel=current,seed=2", 1.0),
    ];
    let claim = Claim {
        ratio_to: Some(parts("bundled")),
        ..claim(Statement::AtMost(1.0))
    };
    let judged = claim.judge(&runs, &parts("kernel=current"), &[]);
    assert_eq!(judged.verdict, Verdict::NotRun);
}

#[test]
fn failed_claim_is_not_run_until_all_causes_are_run() {
    let claim = claim(Statement::Value(5000.0, 100.0));
    let causes = [cause("kernel=old"), cause("kernel=before")];
    let judged = claim.judge(&runs(), &parts("kernel=current"), &causes);
    assert_eq!(judged.verdict, Verdict::NotRun);
    assert!(!judged.baseline.is_empty());
}

#[test]
fn undecided_due_to_cause_names_cause() {
    let runs = [
        run("plain,kernel=current,seed=1", 2.0),
        run("plain,kernel=before,seed=1", 3.0),
        run("plain,kernel=old,seed=1", 0.9),
        run("plain,kernel=old,seed=2", 1.1),
    ];
    let causes = [cause("kernel=before"), cause("kernel=old")];
    let claim = claim(Statement::AtMost(960.0));
    let judged = claim.judge(&runs, &parts("kernel=current"), &causes);
    assert_eq!(
        (judged.verdict, judged.cause),
        (Verdict::Undecided, Some(1))
    );
    let judged = claim.judge(&runs, &parts("kernel=old"), &causes);
    assert_eq!((judged.verdict, judged.cause), (Verdict::Undecided, None));
}

#[test]
fn difference_uses_same_seed() {
    let less = Claim {
        minus: Some(parts("bundled")),
        ..claim(Statement::Value(533.0, 0.1))
    };
    let judged = judged(&less);
    assert_eq!(judged.verdict, Verdict::Near, "{judged:?}");
    assert_eq!(judged.baseline[0].runs, 1, "seed 2 has no bundled run");
}

#[test]
fn measure_share_above_bound() {
    let group = &run("any", 1.0).measures.groups["thin"];
    let share = group.named("ack_latency_ms above 900").unwrap();
    assert!((share - 0.1).abs() < 1.5e-3, "{share}");
    assert_eq!(group.named("ack_latency_ms above 2000"), Some(0.0));
    assert_eq!(group.named("ack_latency_ms p50"), Some(500.0));
    assert_eq!(group.named("itt_ms p50"), None);
}

#[test]
fn value_is_undecided_if_interval_crosses_tolerance() {
    let runs = |scales: [f64; 3]| -> Vec<MeasuredRun> {
        let seeds = scales.into_iter().zip(1..);
        let run = |(scale, seed)| run(&format!("plain,kernel=current,seed={seed}"), scale);
        seeds.map(run).collect()
    };
    let verdict = |scales, within| {
        let claim = claim(Statement::Value(970.0, within));
        let judged = claim.judge(&runs(scales), &parts("kernel=current"), &[]);
        (judged.verdict, judged.baseline[0].half.unwrap())
    };
    // Half of the interval is 2.48 deviations of 97.
    let wide = [0.9, 1.0, 1.1];
    assert!((verdict(wide, 100.0).1 - 241.0).abs() < 1.0);
    assert_eq!(
        verdict(wide, 100.0).0,
        Verdict::Undecided,
        "wider than the tolerance"
    );
    assert_eq!(verdict(wide, 250.0).0, Verdict::Near);
    assert_eq!(
        verdict([1.9, 2.0, 2.1], 100.0).0,
        Verdict::Miss,
        "far off in any case"
    );
    assert_eq!(verdict([1.2, 1.3, 1.4], 100.0).0, Verdict::Undecided);
    assert_eq!(
        verdict([1.14, 1.15, 1.16], 100.0).0,
        Verdict::Miss,
        "by its mean"
    );
}

#[test]
fn undecided_claim_names_cause_with_which_it_holds() {
    let claim = claim(Statement::AtMost(1000.0));
    let mut runs = runs();
    runs.push(run("plain,kernel=before,seed=1", 0.5));
    let causes = [cause("kernel=old"), cause("kernel=before")];
    let judged = claim.judge(&runs, &parts("kernel=current"), &causes);
    assert_eq!(
        (judged.verdict, judged.cause),
        (Verdict::Undecided, Some(1))
    );
    assert_eq!(judged.holds, [Some(false), Some(true)]);
}

#[test]
fn most_explanatory_cause_is_preferred() {
    let runs = vec![
        run("plain,kernel=current,seed=1", 1.0),
        run("plain,kernel=by-chance,seed=1", 2.0),
        run("plain,kernel=old,seed=1", 2.05),
    ];
    let causes = ["kernel=by-chance", "kernel=old"];
    let causes = causes.map(cause);
    let claims = |values: &[f64]| {
        let claims = values.iter();
        claims
            .map(|value| claim(Statement::Value(*value, 30.0)))
            .collect()
    };
    let result = |values: &[f64]| ExperimentResult {
        reproduction: Reproduction {
            causes: causes.to_vec(),
            ..published("", "", claims(values))
        },
        runs: runs.clone(),
        ..ExperimentResult::default()
    };
    let explained = |result: ExperimentResult| -> Vec<_> {
        result.judged().iter().map(|(_, it)| it.cause).collect()
    };
    assert_eq!(
        explained(result(&[1965.0])),
        [Some(0)],
        "the first of equals"
    );
    assert_eq!(
        explained(result(&[1965.0, 2000.0, 1000.0])),
        [Some(1), Some(1), None]
    );
}

#[test]
fn miss_shows_nearest_cause() {
    let shown = |statement| {
        let claim = claim(statement);
        let runs = [
            run("plain,kernel=current,seed=1", 1.0),
            run("plain,kernel=old,seed=1", 2.0),
            run("plain,kernel=before,seed=1", 3.0),
        ];
        let causes = [cause("kernel=old"), cause("kernel=before")];
        let judged = claim.judge(&runs, &parts("kernel=current"), &causes);
        (judged.verdict, claim.shown_cause(&judged))
    };
    assert_eq!(shown(Statement::Value(5000.0, 1.0)), (Verdict::Miss, 1));
    assert_eq!(shown(Statement::AtMost(10.0)), (Verdict::Miss, 0));
    assert_eq!(shown(Statement::AtLeast(1e4)), (Verdict::Miss, 1));
    assert_eq!(shown(Statement::Value(970.0, 1.0)), (Verdict::Near, 0));
}

#[test]
fn runs_without_value_are_counted() {
    let ratio = Claim {
        ratio_to: Some(parts("bundled")),
        ..claim(Statement::AtLeast(1.0))
    };
    assert_eq!(
        judged(&ratio).runs_without_value,
        1,
        "of seed 2 there is no bundled run"
    );
    assert_eq!(
        judged(&claim(Statement::AtLeast(1.0))).runs_without_value,
        0
    );
}
