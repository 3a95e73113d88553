use super::*;

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
    assert_eq!(judged.shown_by, Some(0));
}

#[test]
fn what_holds_nowhere_is_a_miss() {
    for statement in [
        Statement::Value(5000.0, 100.0),
        Statement::AtMost(10.0),
        Statement::AtLeast(4000.0),
        Statement::Ascending(vec![subject("plain", "thin"), subject("plain", "thin")]),
    ] {
        assert_eq!(judged(&claim(statement)).verdict, Verdict::Miss);
    }
}

#[test]
fn without_the_runs_there_is_no_verdict() {
    let claim = Claim {
        subject: subject("unheard-of", "thin"),
        ..claim(Statement::AtMost(1.0))
    };
    assert_eq!(judged(&claim).verdict, Verdict::NotRun);
}

#[test]
fn an_order_is_of_means() {
    let order = vec![subject("bundled", "thin"), subject("plain", "thin")];
    let judged = judged(&claim(Statement::Ascending(order)));
    assert_eq!(judged.verdict, Verdict::Near);
    assert_eq!(judged.today.len(), 2);
}

#[test]
fn a_proportion_is_taken_seed_by_seed_and_within_the_run_where_it_can_be() {
    let to_greedy = Claim {
        measure: "lost_data_packets_share".to_owned(),
        over: Some(Subject {
            runs: Vec::new(),
            group: "greedy".to_owned(),
        }),
        ..claim(Statement::Value(0.55, 0.01))
    };
    assert_eq!(judged(&to_greedy).verdict, Verdict::Near);
    let to_bundled = Claim {
        over: Some(subject("bundled", "thin")),
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
        subject: subject("b", "thin"),
        over: Some(subject("a", "thin")),
        ..claim(Statement::Value(2.0, 0.01))
    };
    let judged = claim.judge(&runs, &parts("kernel=today"), &[]);
    assert_eq!(judged.verdict, Verdict::Near, "{judged:?}");
}

#[test]
fn a_proportion_may_be_to_another_measure_of_the_same_run() {
    let claim = Claim {
        over: Some(subject("plain", "thin")),
        over_measure: Some("ack_latency_ms p50".to_owned()),
        ..claim(Statement::Value(1.94, 0.001))
    };
    assert_eq!(judged(&claim).verdict, Verdict::Near);
}

#[test]
fn a_proportion_to_nothing_is_no_value() {
    let claim = Claim {
        measure: "lost_data_packets_share".to_owned(),
        over: Some(subject("none", "thin")),
        ..claim(Statement::AtLeast(1.0))
    };
    let seed_1 = |name, scale| run(&format!("{name},kernel=today,seed=1"), scale);
    for scale in [0.0, 1.0] {
        let runs = [seed_1("plain", scale), seed_1("none", 0.0)];
        let judged = claim.judge(&runs, &parts("kernel=today"), &[]);
        assert_eq!(judged.verdict, Verdict::NotRun, "{judged:?}");
    }
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
fn a_difference_is_taken_of_the_same_seed() {
    let less = Claim {
        minus: Some(subject("bundled", "thin")),
        ..claim(Statement::Value(485.0, 0.1))
    };
    let judged = judged(&less);
    assert_eq!(judged.verdict, Verdict::Near, "{judged:?}");
    assert_eq!(judged.today[0].runs, 1, "seed 2 has no bundled run");
}

#[test]
fn a_measure_may_ask_for_the_share_above_a_bound() {
    let group = &run("any", 1.0).digest.groups["thin"];
    let share = group.value("ack_latency_ms above 900").unwrap();
    assert!((share - 0.1).abs() < 1.5e-3, "{share}");
    assert_eq!(group.value("ack_latency_ms above 2000"), Some(0.0));
    assert_eq!(group.value("ack_latency_ms p50"), Some(500.0));
    assert_eq!(group.value("unheard_of_ms p50"), None);
}
