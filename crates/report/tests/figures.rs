//! What every figure promises, whatever it is given.

use pillion_report::{Axis, Distribution, Figure, Line};
use roxmltree::Document;

const HOSTILE: &str = "</text></svg><script>alert('&')</script>\u{1b}[31m\u{0}]]>\"";

fn latencies(n: u32, spread: f64) -> Distribution {
    Distribution::new((0..n).map(|i| {
        let late = f64::from(n) / f64::from(i + 1);
        75.0 + spread * (1.0 + late.ln()).floor()
    }))
}

fn axis() -> Axis {
    Axis {
        min: Some(0.0),
        ..Axis::linear("delivery latency", "ms")
    }
}

fn both(series: &[(&str, &Distribution)]) -> [Figure; 2] {
    [
        Figure::ccdf("tail", axis(), "share that took longer", series),
        Figure::cdf("body", axis(), "share that took no longer", series),
    ]
}

fn texts(svg: &str, class: &str) -> Vec<String> {
    let document = Document::parse(svg).expect("well-formed");
    let texts = document.descendants().filter(|n| n.has_tag_name("text"));
    texts
        .filter(|n| n.attribute("class").is_some_and(|c| c.starts_with(class)))
        .map(|n| n.text().unwrap_or_default().to_string())
        .collect()
}

/// The rectangle of each text as most fonts would set it.
fn boxes(svg: &str) -> Vec<(String, [f64; 4])> {
    let document = Document::parse(svg).expect("well-formed");
    let texts = document.descendants().filter(|n| n.has_tag_name("text"));
    texts
        .map(|node| {
            let number = |name| -> f64 { node.attribute(name).unwrap().parse().unwrap() };
            let text = node.text().unwrap_or_default().to_string();
            let size = number("font-size");
            let width = 0.55 * size * text.chars().count() as f64;
            let left = match node.attribute("text-anchor").unwrap() {
                "start" => number("x"),
                "middle" => number("x") - width / 2.0,
                _ => number("x") - width,
            };
            let base = number("y");
            let area = [left, base - 0.75 * size, left + width, base + 0.2 * size];
            (text, area)
        })
        .collect()
}

fn assert_apart(svg: &str) {
    let boxes = boxes(svg);
    for (i, (a, [al, at, ar, ab])) in boxes.iter().enumerate() {
        assert!(
            *al > -2.0 && *ar < 902.0 && *at > -2.0 && *ab < 472.0,
            "{a}"
        );
        for (b, [bl, bt, br, bb]) in &boxes[i + 1..] {
            let overlap = al < br && bl < ar && at < bb && bt < ab;
            assert!(!overlap, "'{a}' lies on '{b}'");
        }
    }
}

#[test]
fn every_line_is_labelled_and_no_text_lies_on_another() {
    let (plain, bundled) = (latencies(20_000, 140.0), latencies(20_000, 30.0));
    for mut figure in both(&[("plain TCP", &plain), ("pillion", &bundled)]) {
        figure
            .lines
            .push(Line::vertical("one-way delay 75 ms", 75.0));
        let bound = vec![(75.0, 0.1), (105.0, 0.01), (135.0, 0.001)];
        figure
            .lines
            .push(Line::step("bound: loss^(k+1)", bound).reference());
        let svg = figure.to_svg();
        assert_apart(&svg);
        let labels = texts(&svg, "label");
        for line in &figure.lines {
            assert!(labels.contains(&line.label), "{} in {labels:?}", line.label);
        }
    }
}

#[test]
fn crowded_and_equal_lines_still_have_labels_apart() {
    let d = latencies(500, 30.0);
    let names: Vec<String> = (0..30).map(|i| format!("stream number {i}")).collect();
    let series: Vec<_> = names.iter().map(|n| (n.as_str(), &d)).collect();
    for figure in both(&series) {
        let svg = figure.to_svg();
        assert_apart(&svg);
        assert!(texts(&svg, "label").len() >= 10);
    }
}

#[test]
fn hostile_labels_are_only_text() {
    let d = latencies(100, 30.0);
    for mut figure in both(&[(HOSTILE, &d)]) {
        figure.title = HOSTILE.into();
        figure.caption = HOSTILE.into();
        figure.x.unit = HOSTILE.into();
        figure.side.as_mut().unwrap().label = HOSTILE.into();
        let svg = figure.to_svg();
        let document = Document::parse(&svg).expect("well-formed");
        assert!(!document.descendants().any(|n| n.has_tag_name("script")));
        assert!(svg.chars().all(|c| c == '\n' || !c.is_control()));
    }
}

#[test]
fn a_figure_without_data_says_so() {
    let none = Distribution::default();
    let some = latencies(100, 30.0);
    for figure in both(&[]) {
        assert_eq!(texts(&figure.to_svg(), "label"), ["no data"]);
    }
    for figure in both(&[("plain TCP", &none), ("pillion", &some)]) {
        let labels = texts(&figure.to_svg(), "label");
        assert_eq!(labels, ["no data: plain TCP", "pillion"]);
    }
}

#[test]
fn odd_points_draw_a_figure_all_the_same() {
    let odd = [
        0.0,
        -1.0,
        1e-310,
        1e308,
        -1e308,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    let points: Vec<_> = odd.iter().flat_map(|x| odd.map(|y| (*x, y))).collect();
    for (x, y) in [
        (Axis::linear("", ""), Axis::log("", "")),
        (Axis::log("", ""), Axis::linear("", "")),
    ] {
        let figure = Figure {
            title: String::new(),
            caption: String::new(),
            x,
            y,
            side: None,
            lines: vec![
                Line::step("step", points.clone()),
                Line::straight("straight", points.clone()),
            ],
        };
        let svg = figure.to_svg();
        assert!(Document::parse(&svg).is_ok());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

#[test]
fn a_line_is_cut_off_at_the_end_of_the_axis() {
    let d = latencies(1000, 100.0);
    let [_, mut figure] = both(&[("pillion", &d)]);
    figure.x.max = Some(300.0);
    let svg = figure.to_svg();
    let document = Document::parse(&svg).expect("well-formed");
    let plot = document.root_element().attribute("data-plot").unwrap();
    let right: f64 = plot.split(' ').nth(2).unwrap().parse().unwrap();
    let line = document
        .descendants()
        .find(|n| n.has_attribute("data-label"));
    let d = line.unwrap().attribute("d").unwrap();
    let ends = d.split(|c: char| c.is_alphabetic()).skip(1);
    let xs = d
        .split('H')
        .skip(1)
        .map(|part| part.split('V').next().unwrap());
    let furthest = xs.map(|x| x.parse().unwrap()).fold(0.0, f64::max);
    assert!((furthest - right).abs() <= 0.1, "{furthest} {right}");
    assert!(ends.count() > 2);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let d = latencies(5000, 30.0);
    assert_eq!(
        both(&[("a", &d)]).map(|f| f.to_svg()),
        both(&[("a", &d)]).map(|f| f.to_svg())
    );
}
