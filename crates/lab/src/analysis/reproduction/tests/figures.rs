use super::*;
use pillion_stats::report::STYLES;

#[test]
fn the_first_curve_of_each_kind_of_streams_has_its_style() {
    let curve = |label: &str, stream| Curve {
        stream,
        ..curve(label, "plain", "thin")
    };
    let mut sketch = sketch(FigureKind::Cdf, "ack_latency_ms");
    sketch.series = vec![
        curve("bundled", Some(Stream::Bundled)),
        curve("bundled more", Some(Stream::Bundled)),
        curve("not known", None),
        curve("plain", Some(Stream::Plain)),
        curve("plain more", Some(Stream::Plain)),
        curve("bundled most", Some(Stream::Bundled)),
        curve("plain most", Some(Stream::Plain)),
    ];
    let figure = sketch.draw(&runs(), &Selector::default(), "today").unwrap();
    let named = figure.lines.iter().filter(|line| !line.label.is_empty());
    let styles: Vec<_> = named.map(|line| line.style).collect();
    let again = |style| Some(STYLES + style);
    let [first, others] = [
        [Some(1), Some(3), Some(4), Some(0)],
        [Some(5), again(1), again(0), None],
    ];
    assert_eq!(styles[..4], first);
    assert_eq!(styles[4..], others[..3]);
}

#[test]
fn the_band_of_a_distribution_is_its_interval_over_seeds() {
    let sketch = sketch(FigureKind::Cdf, "ack_latency_ms");
    let figure = sketch.draw(&runs(), &parts("plain,kernel=today"), "today");
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
fn what_is_expected_and_a_curves_own_measure_are_in_the_unit_of_the_axis() {
    let sketch = Sketch {
        over: Some("n".to_owned()),
        over_label: Some("streams".to_owned()),
        expected: expected("demand", [(1.0, 0.01), (8.0, 0.08)]),
        ..sketch(FigureKind::Values, "lost_data_packets_share")
    };
    assert_eq!(
        sketch.draw(&[], &Selector::default(), "today"),
        None,
        "nothing was run"
    );
    let mut sketch = sketch;
    sketch.series[1].group = "thin".to_owned();
    sketch.series[1].measure = Some(measure("retransmitted_packets of streams jain"));
    let runs = [run("n=1,seed=1", 1.0), run("n=8:1,seed=1", 2.0)];
    let figure = sketch.draw(&runs, &Selector::default(), "today").unwrap();
    let labels: Vec<_> = figure.lines.iter().map(|line| &*line.label).collect();
    assert_eq!(labels, ["thin", "greedy", "demand"]);
    assert_eq!(figure.lines[0].points, [(1.0, 1.0), (8.0, 2.0)]);
    let jain = 43.0 * 43.0 / (3.0 * 1605.0) * 100.0;
    assert!((figure.lines[1].points[0].1 - jain).abs() < 1e-9);
    assert_eq!(figure.lines[2].points, [(1.0, 1.0), (8.0, 8.0)]);
}

#[test]
fn dots_are_of_each_stream_of_each_seed() {
    let sketch = sketch(FigureKind::Dots, "retransmitted_packets of streams");
    let figure = sketch.draw(&runs(), &Selector::default(), "today").unwrap();
    let [thin] = &figure.lines[..] else {
        panic!("greedy streams have no such values: {figure:?}");
    };
    assert_eq!((thin.points.len(), thin.style), (12, Some(0)));
    assert!(thin.points.iter().all(|(_, y)| (y - 1.0).abs() < 0.5));
    assert_eq!(figure.y.names, ["greedy", "thin"]);
}

#[test]
fn a_series_is_the_slices_of_one_run_and_what_was_to_be_expected() {
    let sketch = Sketch {
        expected: expected("1 Mbit/s", [(0.0, 1e6), (3.0, 1e6)]),
        ..sketch(FigureKind::Series, "received_goodput_bit_per_s of slices")
    };
    let runs = [run("seed=1", 1.0), run("seed=2", 2.0)];
    let figure = sketch.draw(&runs, &Selector::default(), "today").unwrap();
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
fn a_figure_is_drawn_at_each_value_that_was_run() {
    let names = [
        "plain,loss=5",
        "bundled,loss=5",
        "plain,loss=10",
        "bundled,loss=10",
    ];
    let curve = |of: &str| curve(of, &format!("{of},loss=10"), "thin");
    let row = Row {
        published: Reproduction {
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
        ..Row::default()
    };
    let figures: Vec<_> = row.figures().collect();
    let drawn = figures.iter().map(|it| (it.title.as_str(), it.lines.len()));
    assert_eq!(
        drawn.collect::<Vec<_>>(),
        [("a figure, today", 3), ("a figure, at loss=5, today", 2)],
        "what is to be expected is so at the published value"
    );
    let html = page(&[row], Vec::new()).to_html();
    assert!(html.contains("loss=5&quot;]"), "it can be chosen");
}

#[test]
fn what_was_not_run_has_no_place_among_boxes() {
    let mut sketch = sketch(FigureKind::Boxes, "ack_latency_ms");
    let mut other = sketch.series[0].clone();
    other.label = "adaptive".to_owned();
    other.runs = parts("adaptive");
    sketch.series = vec![other, sketch.series[0].clone()];
    sketch.series[1].runs = parts("plain");
    let figure = sketch.draw(&runs(), &Selector::default(), "today").unwrap();
    assert_eq!(
        figure.y,
        pillion_stats::report::Axis::names("", vec!["thin".to_owned()])
    );
    assert_eq!(figure.lines[0].points[0].1, 0.0);
}

#[test]
fn no_two_files_have_one_name_whatever_experiments_are_called() {
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
    let row = |name: &str| Row {
        name: name.to_owned(),
        published: Reproduction {
            table: vec![table.clone()],
            figure: vec![sketch(FigureKind::Cdf, "ack_latency_ms")],
            ..published("", "", Vec::new())
        },
        runs: runs(),
        ..Row::default()
    };
    let rows = ["a", "a-table", "a-1", "a-1-table"].map(row);
    let all: Vec<String> = files(&rows).map(|(name, _)| name).collect();
    let names: std::collections::BTreeSet<&String> = all.iter().collect();
    assert!(all.iter().any(|name| name == "a-1-table.csv"), "{all:?}");
    assert!(all.iter().any(|name| name == "a-table-1.svg"), "{all:?}");
    assert_eq!(names.len(), all.len(), "{all:?}");
}
