//! Tests of axes, parameters, and selections.

use super::tests::load_text;
use super::*;
use pillion_bpf::LossRule;

#[test]
fn expressions_are_evaluated_per_run() {
    let text = "\
duration = 1
[parameter]
n = [1, 4]
itt = 30
[group.thin]
itt = \"= itt\"
streams = \"= n\"
ramp-up = \"= itt / n\"
[group.greedy]
kind = \"greedy\"
streams = \"= n\"
[bottleneck]
rate = 1
";
    let experiment = load_text(text).unwrap();
    let names: Vec<_> = experiment
        .runs
        .iter()
        .map(|run| run.name.as_str())
        .collect();
    assert_eq!(names, ["n=1,seed=1", "n=4,seed=1"]);
    let streams = experiment.runs[1].plan.streams.iter();
    let counts: Vec<_> = streams.map(|it| it.traffic.streams).collect();
    assert_eq!(counts, [4, 4]);
    let thin = &experiment.runs[1].run.group;
    let thin = thin.iter().find(|(name, _)| &***name == "thin").unwrap().1;
    assert_eq!(thin.traffic.ramp_up.unwrap().mean.as_micros(), 7500);
}

#[test]
fn axes_combine_with_variants() {
    let text = "\
duration = 1
[group.a]
[variant.plain]
[variant.bundled]
group.a.bundle = true
[axis.loss.none]
[axis.loss.runs]
path.loss = \"gilbert-elliott:1:50\"
[grid]
group.a.itt = [30, 50]
";
    let runs = load_text(text).unwrap().runs;
    assert_eq!(runs.len(), 8);
    assert_eq!(runs[7].name.as_str(), "bundled,loss=runs,itt=50,seed=1");
    assert_eq!(runs[0].name.as_str(), "plain,loss=none,itt=30,seed=1");
}

#[test]
fn varied_seed_is_rejected() {
    for (varied, position) in [
        ("[variant.x]\nseed = 5\n", "4:8: "),
        ("[axis.a.b]\nrepetitions = 5\n", "4:15: "),
        ("[grid]\nseed = [5, 6]\n", "4:9: "),
        ("[parameter]\nseed = [1, 2]\n", "4:9: "),
    ] {
        let text = format!("duration = 1\n[group.a]\n{varied}");
        let error = load_text(&text).unwrap_err().to_string();
        assert!(error.contains("seeds cannot be varied here"), "{error}");
        assert!(error.contains(position), "{error}");
    }
    let text = "duration = 1\nseed = 4294967295\nrepetitions = 2\n[group.a]\n";
    let error = load_text(text).unwrap_err().to_string();
    assert!(error.contains("2:8: the last seed is above"), "{error}");
    let text = "duration = 1\n[group.a]\n[variant.\".x\"]\n[variant.y]\n";
    let error = load_text(text).unwrap_err().to_string();
    assert!(error.contains("invalid name `.x`"), "{error}");
}

#[test]
fn invalid_expression_is_reported_with_position() {
    for (expression, error) in [
        (
            "= m",
            "5:11: `= m`; unknown parameter `m`; define it in [parameter]",
        ),
        ("= n +", "5:11: `= n +`; expected an expression of numbers"),
        (
            "= 1 / (n - 1)",
            "5:11: `= 1 / (n - 1)`; the result is not a finite number",
        ),
        ("= n / 2", "5:11: `0.5`; expected a number from"),
    ] {
        let text = format!(
            "duration = 1\n[parameter]\nn = [1]\n[group.a]\nstreams = \"{expression}\"\nitt = \"= n\"\n"
        );
        let mistakes = load_text(&text).unwrap_err().to_string();
        assert!(mistakes.contains(error), "{mistakes}");
    }
    let text = "duration = 1\n[parameter]\nn = 1\n[group.a]\n";
    let mistakes = load_text(text).unwrap_err().to_string();
    assert!(mistakes.contains("3:5: no run uses `n`"), "{mistakes}");
}

#[test]
fn selection_limits_runs_of_scale() {
    let text = "\
duration = 300
repetitions = 5
[reproduction]
source = \"a paper\"
[reproduction.selection.quick]
duration = 60
repetitions = 1
only = [\"loss=2\"]
[[reproduction.claim]]
description = \"a number\"
measure = \"ack_latency_ms p97\"
runs = \"loss=2\"
value = 100
tolerance = \"10 %\"
[group.a]
[grid]
path.loss = [1, 2]
";
    let quick = of_text("a.toml", text, RunScale::Quick).unwrap();
    let names: Vec<_> = quick.runs.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names, ["loss=2,seed=1"]);
    assert_eq!(quick.runs[0].plan.duration.as_secs(), 60);
    let claim = &quick.reproduction.unwrap().claims[0];
    assert_eq!(claim.tolerance.unwrap().of(100.0), 10.0);
    for scale in [RunScale::Default, RunScale::Full] {
        assert_eq!(of_text("a.toml", text, scale).unwrap().runs.len(), 10);
    }
    let invalid = text.replace("runs = \"loss=2\"", "runs = \"loss=3\"");
    let mistakes = of_text("a.toml", &invalid, RunScale::Full).unwrap_err().0;
    assert!(mistakes.contains("no run matches `loss=3`"), "{mistakes}");
}

#[test]
fn baseline_only_values_run_without_causes() {
    let text = "\
duration = 300
[reproduction]
source = \"a paper\"
baseline = \"kernel=current\"
causes = [{ runs = \"kernel=published\", description = \"it is as then\" }]
[reproduction.selection.default]
only = [\"loss=1\", \"loss=2\"]
baseline-only = [\"loss=1\"]
[group.a]
[grid]
path.loss = [1, 2, 3]
[axis.kernel.current]
[axis.kernel.published]
path.rtt = 10
";
    let names = |text: &str, scale| {
        let runs = of_text("a.toml", text, scale).unwrap().runs;
        runs.into_iter()
            .map(|run| run.name.to_string())
            .collect::<Vec<_>>()
    };
    let selected = [
        "kernel=current,loss=1,seed=1",
        "kernel=current,loss=2,seed=1",
        "kernel=published,loss=2,seed=1",
    ];
    assert_eq!(names(text, RunScale::Default), selected);
    assert_eq!(names(text, RunScale::Full).len(), 6);
    let baseline_only = "baseline-only = [\"loss=1\"]";
    let extra_runs = text.replace(
        baseline_only,
        "extra-runs = [\"loss=3\", \"loss=1,seed=1\"]",
    );
    let selected = [
        "kernel=current,loss=1,seed=1",
        "kernel=current,loss=2,seed=1",
        "kernel=current,loss=3,seed=1",
        "kernel=published,loss=1,seed=1",
        "kernel=published,loss=2,seed=1",
    ];
    assert_eq!(names(&extra_runs, RunScale::Default), selected);
    let invalid = extra_runs.replace("\"loss=3\"", "\"loss=4\"");
    let mistakes = of_text("a.toml", &invalid, RunScale::Full).unwrap_err().0;
    assert!(mistakes.contains("no run matches `loss=4`"), "{mistakes}");
    let invalid = text.replace(baseline_only, "baseline-only = [\"loss=4\"]");
    let mistakes = of_text("a.toml", &invalid, RunScale::Full).unwrap_err().0;
    assert!(mistakes.contains("no run matches `loss=4`"), "{mistakes}");
}

#[test]
fn published_table_needs_cell_and_measure_per_column() {
    let text = "\
duration = 300
[reproduction]
source = \"a paper\"
[[reproduction.table]]
title = \"Table 1\"
duration = 300
columns = [{ label = \"med\", measure = \"p50\" }, { label = \"max\", measure = \"p100\" }]
lines = [{ label = \"sent\", measure = \"data_packets of streams\", counts = true, published = [1, \"<1\"] }]
[group.a]
";
    let load = |text: &str| of_text("a.toml", text, RunScale::Full);
    let reproduction = load(text).unwrap().reproduction.unwrap();
    let line = &reproduction.table[0].lines[0];
    let words = Cell::Words("<1".to_owned());
    assert_eq!(line.published, [Cell::Number(1.0), words]);
    for (from, to, error) in [
        (
            "[1, \"<1\"]",
            "[1]",
            "table `Table 1`: line `sent` has 1 published cells for 2 columns",
        ),
        (", published = [1, \"<1\"]", "", ""), // Nothing was published.
        (
            "\"p50\" }, {",
            "\"p50\", group = \"a\" }, { group = \"a\",",
            "",
        ),
        (
            "title = \"Table 1\"\nduration = 300",
            "title = \"Table 1\"",
            "has counts; set the table's `duration`",
        ),
        (
            "duration = 300\ncolumns",
            "duration = 0\ncolumns",
            "`duration` must be above 0",
        ),
        (
            "label = \"sent\",",
            "label = \"sent\", runs = \"loss=3\",",
            "no run matches `loss=3`",
        ),
        ("label = \"sent\",", "caption = 1,", "unknown key `caption`"),
        (
            "data_packets of",
            "data_packet of",
            "line `sent`, column `med`: unknown measure of streams `data_packet`; the nearest is `data_packets`",
        ),
        (
            "\"p50\"",
            "\"p5o\"",
            "column `med`: unknown statistic `p5o` of `data_packets of streams`; known: p0 to p100",
        ),
        (
            "\"p50\"",
            "\"\"",
            "column `med`: `data_packets of streams` has several values",
        ),
        (
            "counts = true",
            "group = \"b\"",
            "table `Table 1`: line `sent`: unknown group `b`; seed=1 has: a",
        ),
    ] {
        let mistakes = load(&text.replace(from, to)).err();
        let mistakes = mistakes.map_or_else(String::new, |it| it.0);
        assert_eq!(mistakes.is_empty(), error.is_empty(), "{mistakes}");
        assert!(mistakes.contains(error), "{mistakes}");
    }
    let neither = text
        .replace("data_packets of streams", "")
        .replace("p50", "");
    let mistakes = load(&neither).unwrap_err().0;
    let error = "neither line `sent` nor column `med` has a measure";
    assert!(mistakes.contains(error), "{mistakes}");
    let both = text.replace("label = ", "group = \"a\", label = ");
    let mistakes = load(&both).unwrap_err().0;
    let error = "both line `sent` and column `max` have a group";
    assert!(mistakes.contains(error), "{mistakes}");
}

#[test]
fn figure_kind_restricts_x_expected_and_measure() {
    let text = "\
duration = 1
[reproduction]
source = \"a paper\"
[[reproduction.figure]]
title = \"Goodput\"
kind = \"values\"
measure = \"received_goodput_bit_per_s\"
x = \"n\"
expected = [{ label = \"demand\", value = \"= min(9600 * n, 1000000)\" }]
[group.a]
streams = \"= n\"
[parameter]
n = [1, 2]
";
    let load = |text: &str| of_text("a.toml", text, RunScale::Full);
    let figure = &load(text).unwrap().reproduction.unwrap().figure[0];
    let at = |n| figure.expected_at(&figure.expected[0], n);
    assert_eq!([at(2.0), at(512.0)], [Some(19200.0), Some(1e6)]);
    for (from, to, error) in [
        (
            "9600 * n",
            "9600 * m",
            "must be an expression of `n`, as in",
        ),
        (
            "= min(9600 * n, 1000000)",
            "9600",
            "`9600` must be an expression of `n`",
        ),
        (
            "x = \"n\"\n",
            "",
            "`x` is required by kind \"values\", and possible for \"boxes\" only",
        ),
        (
            "kind = \"values\"",
            "kind = \"ccdf\"",
            "`x` is required by kind \"values\", and possible for \"boxes\" only",
        ),
        (
            "\"values\"",
            "\"boxes\"",
            "`expected` belongs to kinds \"values\" and \"series\"",
        ),
        (
            "\"values\"",
            "\"cdf\"",
            "`expected` belongs to kinds \"values\" and \"series\"",
        ),
        ("x = \"n\"", "from = 0.9", "`from` belongs to kind \"cdf\""),
        (
            "kind = \"values\"\nmeasure = \"received_goodput_bit_per_s\"",
            "kind = \"series\"\nmeasure = \"received_goodput_bit_per_s of slices of 30 s\"",
            "this kind cannot draw `received_goodput_bit_per_s of slices of 30 s`; it draws slices of time",
        ),
        (
            "kind = \"values\"",
            "kind = \"dots\"",
            "this kind cannot draw `received_goodput_bit_per_s`; it draws single streams; let the",
        ),
    ] {
        let mistakes = load(&text.replace(from, to)).unwrap_err().0;
        assert!(mistakes.contains(error), "{mistakes}");
    }
}

#[test]
fn bdp_uses_mean_rtt_of_all_streams() {
    let bdp = |text: &str| {
        let plan = &load_text(text).unwrap().runs[0].plan;
        plan.bdp_bytes(&plan.bottleneck).unwrap()
    };
    let head = "duration = 1\n[bottleneck]\nrate = 8\nlimit = \"1 BDP\"\n";
    let path = format!("{head}[path]\nrtt = 100\n[group.a]\n");
    assert_eq!(bdp(&path), 1e5);
    let own = format!("{head}[group.a]\nrtt = \"100ms+100ms\"\nstreams = 3\n");
    assert!((bdp(&own) - 2e5).abs() < 1.0);
    let both = format!("{path}[group.b]\nrtt = 300\n");
    assert!((bdp(&both) - 2e5).abs() < 1.0);
}

#[test]
fn axis_sets_bundling_options_only_of_variants_that_bundle() {
    let text = "\
duration = 1
[group.thin]
[variant.plain]
group.thin.bundle = { enabled = false }
[variant.bundled]
group.thin.bundle = { enabled = true, max-packets = 1 }
[axis.rule.current]
[axis.rule.published]
group.thin.bundle = { loss-rule = \"ack\" }
";
    let experiment = load_text(text).unwrap();
    let rules = experiment.runs.iter().map(|run| {
        let bundling = run.plan.streams[0].bundling;
        bundling.map(|it| (it.options.max_packets, it.options.loss_rule))
    });
    let rules: Vec<_> = rules.collect();
    let one = Some(1);
    assert_eq!(
        rules,
        [
            None,
            None,
            Some((one, LossRule::Auto)),
            Some((one, LossRule::Ack))
        ]
    );
    let invalid = text.replace("enabled = true", "enabled = 1");
    let error = load_text(&invalid).unwrap_err().to_string();
    assert!(error.contains("6:23: unknown key `enabled`"), "{error}");
}
