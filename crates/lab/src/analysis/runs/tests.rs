use super::*;

/// A group of two streams or more, each with 50 messages that take `base` ms and some more: up to
/// 10 ms for each message, and for each stream something of its own.
fn group(name: &str, base: f64, streams: usize, seed: u64) -> Group {
    let mut state = seed;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as f64 / f64::from(1_u32 << 31)
    };
    let streams = (0..streams).map(|_| {
        let own = random() * 5.0;
        Stream {
            totals: Totals {
                received_bytes: 5000,
                sent_bytes: 5000,
                ..Totals::default()
            },
            delivery_ms: (0..50).map(|_| base + own + random() * 10.0).collect(),
        }
    });
    Group {
        name: name.to_owned(),
        delivery_ms: [None; 6],
        streams: streams.collect(),
        whole: Totals {
            runs: 1,
            seconds: 10.0,
            ..Totals::default()
        },
    }
}

fn of(runs: &[(&str, f64, u64)]) -> Vec<Pool> {
    let runs = runs.iter();
    pools(runs.map(|(name, base, seed)| (Label::of(name), vec![group("thin", *base, 8, *seed)])))
}

fn p50(comparison: &Comparison) -> Difference {
    comparison.sections[0].variants[1].differences["delivery_p50_ms"]
}

#[test]
fn runs_that_differ_in_their_seed_are_one_pool() {
    let all = of(&[
        ("plain,loss=1,seed=1", 75.0, 1),
        ("plain,loss=1,seed=2", 75.0, 2),
        ("plain,loss=2,seed=1", 75.0, 3),
        ("one-cwr,loss=1,seed=1", 75.0, 4),
    ]);
    let told: Vec<_> = all
        .iter()
        .map(|it| (&*it.label.variant, &*it.label.point, it.runs()))
        .collect();
    let expected = [
        ("plain", "loss=1", 2),
        ("plain", "loss=2", 1),
        ("one-cwr", "loss=1", 1),
    ];
    assert_eq!(told, expected);
    assert!(all[0].delivery_ms().is_sorted() && all[0].delivery_ms().count() == 800);
}

#[test]
fn a_difference_is_found_with_an_interval_around_it_and_the_same_each_time() {
    let all = of(&[
        ("early,seed=1", 75.0, 1),
        ("early,seed=2", 75.0, 2),
        ("plain,seed=1", 95.0, 3),
        ("plain,seed=2", 95.0, 4),
    ]);
    let comparison = compare(&all, None).unwrap();
    assert_eq!(comparison.baseline, "plain");
    let difference = p50(&comparison);
    let (low, high) = (difference.low.unwrap(), difference.high.unwrap());
    assert!(
        low < difference.by && difference.by < high,
        "{difference:?}"
    );
    assert!(
        low < -18.0 && -22.0 < high && high - low < 8.0,
        "{difference:?}"
    );
    assert_eq!(p50(&compare(&all, None).unwrap()), difference);
    let goodput = comparison.sections[0].variants[0].values["goodput_bit_per_s"];
    assert_eq!(goodput, 8.0 * 5000.0 * 8.0 / 10.0);
    let max = comparison.sections[0].variants[1].differences["delivery_max_ms"];
    assert_eq!((max.low, max.high), (None, None));
}

#[test]
fn a_run_that_repeats_another_one_counts_once() {
    let all = of(&[
        ("plain,seed=1", 75.0, 1),
        ("plain,seed=2", 75.0, 1),
        ("plain,seed=3", 75.0, 2),
    ]);
    assert_eq!((all[0].runs(), all[0].repeats), (2, 1));
}

#[test]
fn points_of_a_grid_stand_in_the_order_of_their_numbers() {
    let all = of(&[
        ("a,loss=10", 75.0, 1),
        ("a,loss=2", 75.0, 2),
        ("a,loss=0.5", 75.0, 3),
        ("a,loss=2:20", 75.0, 4),
        ("a,loss=2:3", 75.0, 5),
        ("a,loss=1in9", 75.0, 6),
        ("a,loss=nan", 75.0, 7),
    ]);
    let comparison = compare(&all, None).unwrap();
    let points = comparison.sections.iter().map(|it| it.point.as_str());
    assert!(points.eq([
        "loss=0.5",
        "loss=2",
        "loss=2:3",
        "loss=2:20",
        "loss=10",
        "loss=nan",
        "loss=1in9"
    ]));
}

#[test]
fn the_values_of_all_points_stand_in_one_table_below_their_names() {
    let all = of(&[
        ("plain,loss=2,seed=1", 75.0, 1),
        ("plain,loss=10,seed=1", 95.0, 2),
    ]);
    let comparison = compare(&all, None).unwrap();
    let table = all_values_table(&comparison.sections).to_markdown();
    let lines: Vec<_> = table.lines().collect();
    assert!(
        lines[0].starts_with("| variant | runs | p50, ms |"),
        "{table}"
    );
    assert_eq!(lines[2], "| **loss=2, group thin** |");
    assert!(lines[3].starts_with("| plain | 1 | 81.5 |"), "{table}");
    assert_eq!(lines[4], "| **loss=10, group thin** |");
    assert!(lines[5].starts_with("| plain | 1 | 101.5 |"), "{table}");
}

#[test]
fn measures_that_are_not_asked_for_are_left_out() {
    let all = of(&[("plain,seed=1", 75.0, 1), ("late,seed=1", 85.0, 2)]);
    let mut comparison = compare(&all, None).unwrap();
    comparison.keep(&[measure("delivery_p90_ms").unwrap()]);
    let late = &comparison.sections[0].variants[1];
    assert!(late.values.keys().eq(&["delivery_p90_ms"]));
    assert!(late.differences.keys().eq(&["delivery_p90_ms"]));
    let error = measure("p90").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("no measure is called `p90`; there are delivery_p50_ms,")
    );
}

#[test]
fn where_nothing_differs_most_intervals_hold_nothing() {
    let held = (0..30).filter(|round| {
        let names: Vec<String> = (0..3).map(|seed| format!("seed={seed}")).collect();
        let mut runs: Vec<(String, u64)> = Vec::new();
        for (place, variant) in ["a", "b"].into_iter().enumerate() {
            for (number, name) in names.iter().enumerate() {
                let seed = round * 100 + (place * 10 + number) as u64 + 1;
                runs.push((format!("{variant},{name}"), seed.wrapping_mul(0x9e37_79b9)));
            }
        }
        let runs: Vec<_> = runs
            .iter()
            .map(|(name, seed)| (&**name, 75.0, *seed))
            .collect();
        let difference = p50(&compare(&of(&runs), None).unwrap());
        difference.low.unwrap() <= 0.0 && 0.0 <= difference.high.unwrap()
    });
    let held = held.count();
    assert!((25..=30).contains(&held), "{held} of 30");
}

#[test]
fn without_variants_the_points_of_a_grid_are_compared() {
    let all = of(&[("loss=1,seed=1", 75.0, 1), ("loss=2,seed=1", 80.0, 2)]);
    let comparison = compare(&all, Some("loss=2")).unwrap();
    assert_eq!(comparison.sections.len(), 1);
    let variants = comparison.sections[0].variants.iter();
    let variants: Vec<&str> = variants.map(|it| it.variant.as_str()).collect();
    assert_eq!(variants, ["loss=2", "loss=1"]);
}

#[test]
fn a_baseline_that_is_not_there_is_named_with_those_that_are() {
    let all = of(&[("a,seed=1", 75.0, 1), ("b,seed=1", 75.0, 2)]);
    let error = compare(&all, Some("c")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no variant is called `c`; there are a, b"
    );
    assert_eq!(compare(&[], None).unwrap_err(), CompareError::Nothing);
}

#[test]
fn the_page_has_the_curves_of_all_variants() {
    let all = of(&[("plain,seed=1", 75.0, 1), ("late,seed=1", 85.0, 2)]);
    let html = comparison_page("loss", &compare(&all, None).unwrap(), &all).to_html();
    for variant in ["plain", "late"] {
        assert!(html.contains(&format!("data-label=\"{variant}\"")));
    }
    assert!(html.contains("delivery_p99_9_ms") && html.contains(" to +"));
}

fn totals(received_messages: u64, failed_streams: u64) -> Totals {
    Totals {
        streams: 30,
        failed_streams,
        sent_messages: 6000,
        received_messages,
        ..Totals::default()
    }
}

#[test]
fn what_is_missing_is_told_and_nothing_where_all_arrived() {
    assert_eq!(totals(6000, 0).survivors(), None);
    let told = totals(2726, 24).survivors().unwrap().replace('\u{a0}', " ");
    assert!(
        told.starts_with("2 726 of 6 000 messages received, 24 of 30 streams failed;"),
        "{told}"
    );
}

#[test]
fn what_would_move_a_percentile_is_much() {
    assert!(!totals(6000, 0).is_much_missing());
    assert!(!totals(5994, 0).is_much_missing());
    assert!(totals(5993, 0).is_much_missing());
    assert!(totals(6000, 1).is_much_missing());
    assert!(!Totals::default().is_much_missing());
}
