use super::*;
use pillion_stats::report::STYLES;

#[test]
fn first_curve_of_each_stream_kind_has_kinds_style() {
    let curve = |label: &str, stream| Curve {
        stream,
        ..curve(label, "plain", "thin")
    };
    let mut sketch = sketch(FigureKind::Cdf, "ack_latency_ms");
    sketch.series = vec![
        curve("bundled", Some(StreamKind::Bundled)),
        curve("bundled more", Some(StreamKind::Bundled)),
        curve("not known", None),
        curve("plain", Some(StreamKind::Plain)),
        curve("plain more", Some(StreamKind::Plain)),
        curve("bundled most", Some(StreamKind::Bundled)),
        curve("plain most", Some(StreamKind::Plain)),
    ];
    let figure = sketch
        .draw(&runs(), &Selector::default(), "current kernel")
        .unwrap();
    let named = figure.lines.iter().filter(|line| !line.label.is_empty());
    let styles: Vec<_> = named.map(|line| line.style).collect();
    let repeated = |style| Some(STYLES + style);
    let [first, others] = [
        [Some(1), Some(3), Some(4), Some(0)],
        [Some(5), repeated(1), repeated(0), None],
    ];
    assert_eq!(styles[..4], first);
    assert_eq!(styles[4..], others[..3]);
}

#[test]
fn distribution_band_is_interval_over_seeds() {
    let sketch = sketch(FigureKind::Cdf, "ack_latency_ms");
    let figure = sketch.draw(&runs(), &parts("plain,kernel=current"), "current kernel");
    let lines = figure.unwrap().lines;
    let at_median = lines.iter().map(|line| line.points[500].0);
    let at_median: Vec<f64> = at_median.collect();
    let [mean, low, high] = at_median[..] else {
        panic!("one curve and its band: {at_median:?}");
    };
    // One seed's values are 1.2 times the other's, and 12.706 is Student's t for two of them.
    let least = mean / 1.1;
    let half = 12.706 * 0.1 * least;
    assert_eq!(low, 0.0);
    assert!((high - mean - half).abs() < 1e-6 * mean, "{mean} {high}");
}

#[test]
fn expected_lines_and_own_measures_use_axis_unit() {
    let sketch = Sketch {
        x: Some("n".to_owned()),
        x_label: Some("streams".to_owned()),
        expected: expected("demand", [(1.0, 0.01), (8.0, 0.08)]),
        ..sketch(FigureKind::Values, "lost_data_packets_share")
    };
    assert_eq!(
        sketch.draw(&[], &Selector::default(), "current kernel"),
        None,
        "nothing was run"
    );
    let mut sketch = sketch;
    sketch.series[1].group = "thin".to_owned();
    sketch.series[1].measure = Some(measure("retransmitted_packets of streams jain"));
    let runs = [run("n=1,seed=1", 1.0), run("n=8:1,seed=1", 2.0)];
    let figure = sketch
        .draw(&runs, &Selector::default(), "current kernel")
        .unwrap();
    let labels: Vec<_> = figure.lines.iter().map(|line| &*line.label).collect();
    assert_eq!(labels, ["thin", "greedy", "demand"]);
    assert_eq!(figure.lines[0].points, [(1.0, 1.0), (8.0, 2.0)]);
    let jain = 43.0 * 43.0 / (3.0 * 1605.0) * 100.0;
    assert!((figure.lines[1].points[0].1 - jain).abs() < 1e-9);
    assert_eq!(figure.lines[2].points, [(1.0, 1.0), (8.0, 8.0)]);
}

#[test]
fn dots_show_each_stream_of_each_seed() {
    let sketch = sketch(FigureKind::Dots, "retransmitted_packets of streams");
    let figure = sketch
        .draw(&runs(), &Selector::default(), "current kernel")
        .unwrap();
    let [thin] = &figure.lines[..] else {
        panic!("greedy streams have no such values: {figure:?}");
    };
    assert_eq!((thin.points.len(), thin.style), (12, Some(0)));
    assert!(thin.points.iter().all(|(_, y)| (y - 1.0).abs() < 0.5));
    assert_eq!(figure.y.names, ["greedy", "thin"]);
}

#[test]
fn series_shows_slices_of_one_run_and_expected_line() {
    let sketch = Sketch {
        expected: expected("1 Mbit/s", [(0.0, 1e6), (3.0, 1e6)]),
        ..sketch(FigureKind::Series, "received_goodput_bit_per_s of slices")
    };
    let runs = [run("seed=1", 1.0), run("seed=2", 2.0)];
    let figure = sketch
        .draw(&runs, &Selector::default(), "current kernel")
        .unwrap();
    let [thin, expected] = &figure.lines[..] else {
        panic!("greedy streams have no slices: {figure:?}");
    };
    assert_eq!(
        thin.points,
        [(0.0, 2.0), (1.0, 1.0), (2.0, 3.0), (3.0, 3.0)]
    );
    assert_eq!(expected.points, [(0.0, 1.0), (3.0, 1.0)]);
    assert_eq!(
        (figure.x.unit.as_str(), figure.y.unit.as_str()),
        ("s", "Mbit/s")
    );
}

#[test]
fn figure_is_drawn_at_each_value_with_runs() {
    let names = [
        "plain,loss=5",
        "bundled,loss=5",
        "plain,loss=10",
        "bundled,loss=10",
    ];
    let curve = |of: &str| curve(of, &format!("{of},loss=10"), "thin");
    let result = ExperimentResult {
        reproduction: Reproduction {
            figure: vec![Sketch {
                title: "a figure".to_owned(),
                series: vec![curve("plain"), curve("bundled")],
                expected: expected("all", [(0.0, 1e6), (3.0, 1e6)]),
                ..sketch(FigureKind::Series, "received_goodput_bit_per_s of slices")
            }],
            ..Reproduction::default()
        },
        runs: names
            .iter()
            .map(|name| run(&format!("{name},seed=1"), 1.0))
            .collect(),
        ..ExperimentResult::default()
    };
    let figures: Vec<_> = result.figures().collect();
    let drawn = figures.iter().map(|it| (it.title.as_str(), it.lines.len()));
    assert_eq!(
        drawn.collect::<Vec<_>>(),
        [
            ("a figure, current kernel", 3),
            ("a figure, at loss=5, current kernel", 2)
        ],
        "what is to be expected is so at the published value"
    );
    let html = page(&[result], Vec::new()).to_html();
    assert!(html.contains("loss=5&quot;]"), "it can be chosen");
}

#[test]
fn boxes_omit_curves_without_runs() {
    let mut sketch = sketch(FigureKind::Boxes, "ack_latency_ms");
    let mut other = sketch.series[0].clone();
    other.label = "adaptive".to_owned();
    other.runs = parts("adaptive");
    sketch.series = vec![other, sketch.series[0].clone()];
    sketch.series[1].runs = parts("plain");
    let figure = sketch
        .draw(&runs(), &Selector::default(), "current kernel")
        .unwrap();
    assert_eq!(
        figure.y,
        pillion_stats::report::Axis::names("", vec!["thin".to_owned()])
    );
    assert_eq!(figure.lines[0].points[0].1, 0.0);
}

#[test]
fn file_names_are_unique_for_any_experiment_names() {
    let table = PublishedTable {
        title: "a table".to_owned(),
        columns: vec![Heading {
            label: "p97".to_owned(),
            measure: P97.to_owned(),
            ..Heading::default()
        }],
        lines: vec![Line {
            label: "plain".to_owned(),
            runs: parts("plain"),
            group: "thin".to_owned(),
            published: vec![Cell::Number(1.0)],
            ..Line::default()
        }],
        ..PublishedTable::default()
    };
    let result = |name: &str| ExperimentResult {
        name: name.to_owned(),
        reproduction: Reproduction {
            table: vec![table.clone()],
            figure: vec![sketch(FigureKind::Cdf, "ack_latency_ms")],
            ..published("", "", Vec::new())
        },
        runs: runs(),
        ..ExperimentResult::default()
    };
    let results = ["a", "a-table", "a-1", "a-1-table"].map(result);
    let all: Vec<String> = files(&results).map(|(name, _)| name).collect();
    let names: std::collections::BTreeSet<&String> = all.iter().collect();
    assert!(all.iter().any(|name| name == "a-1-table.csv"), "{all:?}");
    assert!(all.iter().any(|name| name == "a-table-1.svg"), "{all:?}");
    assert_eq!(names.len(), all.len(), "{all:?}");
}
