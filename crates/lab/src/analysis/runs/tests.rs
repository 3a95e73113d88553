use rand::SeedableRng;
use rand_distr::{Distribution as _, Normal};
use rand_pcg::Pcg64Mcg;

use super::*;

/// A group whose streams have 50 messages each. Latency is `base` ms, plus up to 5 ms per stream,
/// plus up to 10 ms per message.
fn group(name: &str, base: f64, streams: usize, seed: u64) -> Group {
    let mut state = seed;
    let mut rng = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as f64 / f64::from(1_u32 << 31)
    };
    let streams = (0..streams).map(|_| {
        let own = rng() * 5.0;
        Stream {
            totals: Totals {
                received_bytes: 5000,
                sent_bytes: 5000,
                ..Totals::default()
            },
            delivery_ms: (0..50).map(|_| base + own + rng() * 10.0).collect(),
        }
    });
    Group {
        name: name.to_owned(),
        delivery_ms: [None; 6],
        streams: streams.collect(),
        run_totals: Totals {
            runs: 1,
            seconds: 10.0,
            ..Totals::default()
        },
    }
}

fn pools_of(runs: &[(&str, f64, u64)]) -> Vec<Pool> {
    let runs = runs.iter();
    pools(runs.map(|(name, base, seed)| {
        (
            Label::from_run_name(name),
            vec![group("thin", *base, 8, *seed)],
        )
    }))
}

fn p50(comparison: &Comparison) -> Difference {
    comparison.sections[0].variants[1].differences["delivery_p50_ms"]
}

#[test]
fn runs_differing_only_in_seed_are_pooled() {
    let all = pools_of(&[
        ("plain,loss=1,seed=1", 75.0, 1),
        ("plain,loss=1,seed=2", 75.0, 2),
        ("plain,loss=2,seed=1", 75.0, 3),
        ("one-cwr,loss=1,seed=1", 75.0, 4),
    ]);
    let reported: Vec<_> = all
        .iter()
        .map(|it| (&*it.label.variant, &*it.label.point, it.runs()))
        .collect();
    let expected = [
        ("plain", "loss=1", 2),
        ("plain", "loss=2", 1),
        ("one-cwr", "loss=1", 1),
    ];
    assert_eq!(reported, expected);
    assert!(all[0].delivery_ms().is_sorted() && all[0].delivery_ms().count() == 800);
}

#[test]
fn difference_lies_in_a_reproducible_interval() {
    let all = pools_of(&[
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
fn repeated_run_counts_once() {
    let all = pools_of(&[
        ("plain,seed=1", 75.0, 1),
        ("plain,seed=2", 75.0, 1),
        ("plain,seed=3", 75.0, 2),
    ]);
    assert_eq!((all[0].runs(), all[0].repeats), (2, 1));
}

#[test]
fn grid_points_are_sorted_numerically() {
    let all = pools_of(&[
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
fn all_values_table_has_a_section_per_point() {
    let all = pools_of(&[
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
fn unrequested_measures_are_omitted() {
    let all = pools_of(&[("plain,seed=1", 75.0, 1), ("late,seed=1", 85.0, 2)]);
    let mut comparison = compare(&all, None).unwrap();
    comparison.retain_measures(&[measure("delivery_p90_ms").unwrap()]);
    let late = &comparison.sections[0].variants[1];
    assert!(late.values.keys().eq(&["delivery_p90_ms"]));
    assert!(late.differences.keys().eq(&["delivery_p90_ms"]));
    let error = measure("p90").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("unknown measure `p90`: expected one of delivery_p50_ms,")
    );
}

#[test]
fn intervals_of_equal_variants_usually_contain_zero() {
    let covered = (0..30).filter(|round| {
        let names: Vec<String> = (0..3).map(|seed| format!("seed={seed}")).collect();
        let mut runs: Vec<(String, u64)> = Vec::new();
        for (index, variant) in ["a", "b"].into_iter().enumerate() {
            for (number, name) in names.iter().enumerate() {
                let seed = round * 100 + (index * 10 + number) as u64 + 1;
                runs.push((format!("{variant},{name}"), seed.wrapping_mul(0x9e37_79b9)));
            }
        }
        let runs: Vec<_> = runs
            .iter()
            .map(|(name, seed)| (&**name, 75.0, *seed))
            .collect();
        let difference = p50(&compare(&pools_of(&runs), None).unwrap());
        difference.low.unwrap() <= 0.0 && 0.0 <= difference.high.unwrap()
    });
    let covered = covered.count();
    assert!((25..=30).contains(&covered), "{covered} of 30");
}

#[test]
fn intervals_of_few_runs_have_their_confidence() {
    let rng = &mut Pcg64Mcg::seed_from_u64(1);
    let goodput = Normal::new(10_000.0, 1_000.0).unwrap();
    let mut run = |seed: u32, variant: &str| {
        let mut group = group("thin", 75.0, 1, 1);
        group.streams[0].delivery_ms.clear();
        group.streams[0].totals.received_bytes = goodput.sample(rng) as u64;
        (
            Label::from_run_name(&format!("{variant},seed={seed}")),
            vec![group],
        )
    };
    let covered = (0..200).filter(|_| {
        let runs: Vec<_> = (0..5)
            .flat_map(|seed| [run(seed, "a"), run(seed, "b")])
            .collect();
        let comparison = compare(&pools(runs), None).unwrap();
        let difference = comparison.sections[0].variants[1].differences["goodput_bit_per_s"];
        difference.low.unwrap() <= 0.0 && 0.0 <= difference.high.unwrap()
    });
    // 190 are expected; tails of 2.5 % of the resamples give some 176.
    let covered = covered.count();
    assert!(covered >= 186, "{covered} of 200");
}

#[test]
fn grid_points_are_compared_without_variants() {
    let all = pools_of(&[("loss=1,seed=1", 75.0, 1), ("loss=2,seed=1", 80.0, 2)]);
    let comparison = compare(&all, Some("loss=2")).unwrap();
    assert_eq!(comparison.sections.len(), 1);
    let variants = comparison.sections[0].variants.iter();
    let variants: Vec<&str> = variants.map(|it| it.variant.as_str()).collect();
    assert_eq!(variants, ["loss=2", "loss=1"]);
}

#[test]
fn unknown_baseline_error_lists_variants() {
    let all = pools_of(&[("a,seed=1", 75.0, 1), ("b,seed=1", 75.0, 2)]);
    let error = compare(&all, Some("c")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown variant `c`: expected one of a, b"
    );
    assert_eq!(compare(&[], None).unwrap_err(), CompareError::NoRuns);
}

#[test]
fn page_has_curves_of_all_variants() {
    let all = pools_of(&[("plain,seed=1", 75.0, 1), ("late,seed=1", 85.0, 2)]);
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
fn missing_note_exists_only_if_messages_are_missing() {
    assert_eq!(totals(6000, 0).missing_note(), None);
    let reported = totals(2726, 24)
        .missing_note()
        .unwrap()
        .replace('\u{a0}', " ");
    assert!(
        reported.starts_with("2 726 of 6 000 messages received, 24 of 30 streams failed;"),
        "{reported}"
    );
}

#[test]
fn missing_limit_is_one_in_a_thousand() {
    assert!(!totals(6000, 0).exceeds_missing_limit());
    assert!(!totals(5994, 0).exceeds_missing_limit());
    assert!(totals(5993, 0).exceeds_missing_limit());
    assert!(totals(6000, 1).exceeds_missing_limit());
    assert!(!Totals::default().exceeds_missing_limit());
}
