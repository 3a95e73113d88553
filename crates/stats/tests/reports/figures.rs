//! Invariants of every figure for any input.

use pillion_stats::report::{Axis, Figure, Line, Page, SortedSamples};
use roxmltree::Document;

const HOSTILE: &str = "</text></svg><script>alert('&')</script>\u{1b}[31m\u{0}]]>\"";

fn latencies(n: u32, spread: f64) -> SortedSamples {
    SortedSamples::new((0..n).map(|i| {
        let tail = f64::from(n) / f64::from(i + 1);
        75.0 + spread * (1.0 + tail.ln()).floor()
    }))
}

fn axis() -> Axis {
    Axis {
        min: Some(0.0),
        ..Axis::linear("delivery latency", "ms")
    }
}

fn both(series: &[(&str, &SortedSamples)]) -> [Figure; 2] {
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

/// The rectangle of each text in most fonts.
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
    let document = Document::parse(svg).expect("well-formed");
    let view = document.root_element().attribute("viewBox").unwrap();
    let view: Vec<f64> = view.split(' ').map(|v| v.parse().unwrap()).collect();
    let boxes = boxes(svg);
    for (i, (a, [al, at, ar, ab])) in boxes.iter().enumerate() {
        assert!(*al > -2.0 && *ar < view[2] + 2.0, "{a}: {al} to {ar}");
        assert!(*at > -2.0 && *ab < view[3] + 2.0, "{a}: {at} to {ab}");
        for (b, [bl, bt, br, bb]) in &boxes[i + 1..] {
            let overlap = al < br && bl < ar && at < bb && bt < ab;
            assert!(!overlap, "'{a}' lies on '{b}'");
        }
    }
}

/// The wide and the narrow drawing of a page.
fn drawings(figure: &Figure) -> Vec<String> {
    let page = Page {
        parts: vec![figure.clone().into()],
        ..Page::default()
    };
    let html = page.to_html();
    let starts: Vec<usize> = html.match_indices("<svg").map(|(at, _)| at).collect();
    let svg = |start: usize| {
        let end = html[start..].find("</svg>").expect("closed") + "</svg>".len();
        html[start..start + end].to_string()
    };
    starts.into_iter().map(svg).collect()
}

#[test]
fn lines_are_labelled_without_overlapping_text() {
    let (plain, bundled) = (latencies(20_000, 140.0), latencies(20_000, 30.0));
    for mut figure in both(&[("plain TCP", &plain), ("pillion", &bundled)]) {
        figure
            .lines
            .push(Line::vertical("one-way delay 75 ms", 75.0));
        let bound = vec![(75.0, 0.1), (105.0, 0.01), (135.0, 0.001)];
        figure
            .lines
            .push(Line::step("bound: loss^(k+1)", bound).reference());
        let drawings = drawings(&figure);
        assert_eq!(drawings.len(), 2);
        for svg in drawings {
            assert_apart(&svg);
            let labels = texts(&svg, "label");
            for line in &figure.lines {
                assert!(labels.contains(&line.label), "{} in {labels:?}", line.label);
            }
        }
    }
}

#[test]
fn crowded_and_equal_lines_have_separate_labels() {
    let d = latencies(500, 30.0);
    let names: Vec<String> = (0..30).map(|i| format!("stream number {i}")).collect();
    let series: Vec<_> = names.iter().map(|n| (n.as_str(), &d)).collect();
    for figure in both(&series) {
        for svg in drawings(&figure) {
            assert_apart(&svg);
            assert!(texts(&svg, "label").len() >= 10);
        }
    }
}

#[test]
fn hostile_labels_are_escaped() {
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
fn figure_without_data_shows_no_data() {
    let none = SortedSamples::default();
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
fn dots_spread_around_named_height_with_given_style() {
    let figure = Figure {
        title: "loss".into(),
        caption: String::new(),
        x: Axis {
            max: Some(10.0),
            ..axis()
        },
        y: Axis::names("", vec!["thin".to_owned(), "greedy".to_owned()]),
        side: None,
        lines: vec![
            Line::dots("thin", &[1.0, 2.0, f64::NAN, 11.0], 0.0).styled(Some(2)),
            Line::dots("greedy", &[3.0; 20], 1.0),
            Line::dots("of nothing", &[], 1.0),
        ],
    };
    for svg in drawings(&figure) {
        let document = Document::parse(&svg).unwrap();
        let paths = document.descendants().filter(|n| n.has_tag_name("path"));
        let dots = paths.filter_map(|n| {
            let class = n.attribute("class")?;
            class
                .starts_with("dots")
                .then(|| (class, n.attribute("d").unwrap()))
        });
        let dots: Vec<_> = dots.collect();
        let [(thin, of_thin), (greedy, of_greedy)] = dots[..] else {
            panic!("{dots:?}");
        };
        assert_eq!((thin, of_thin.matches("h0").count()), ("dots style2", 2));
        assert_eq!((greedy, of_greedy.matches("h0").count()), ("dots", 20));
        let heights = of_greedy.split('M').skip(1).map(|dot| {
            let height = dot.trim_end_matches("h0").split(' ').nth(1).unwrap();
            height.parse::<f64>().unwrap()
        });
        let lowest_of_thin = of_thin.split(' ').nth(1).unwrap();
        let lowest_of_thin: f64 = lowest_of_thin.split('h').next().unwrap().parse().unwrap();
        assert!(heights.into_iter().all(|height| height < lowest_of_thin));
    }
}

#[test]
fn marked_line_has_dots_at_measured_points() {
    let figure = Figure {
        title: "goodput".into(),
        caption: String::new(),
        x: axis(),
        y: axis(),
        side: None,
        lines: vec![
            Line::marked("thin", vec![(1.0, 1.0), (8.0, 2.0), (32.0, 2.5)]),
            Line::straight("expected", vec![(1.0, 1.0), (32.0, 3.0)]).reference(),
        ],
    };
    for svg in drawings(&figure) {
        assert_eq!(svg.matches("class=\"dots style0\"").count(), 1, "{svg}");
        assert_eq!(svg.matches("h0").count(), 3);
        assert!(texts(&svg, "label").contains(&"expected".to_owned()));
    }
}

#[test]
fn boxes_align_with_their_names() {
    let names = [
        "sfq",
        "pfifo, with a name that is longer than there is room for",
    ];
    let figure = Figure {
        title: "latency".into(),
        caption: String::new(),
        x: axis(),
        y: Axis::names("queue", names.map(str::to_owned).to_vec()),
        side: None,
        lines: vec![
            Line::box_of(names[0], [1.0, 2.0, 3.0, 4.0, 5.0], 0.0),
            Line::box_of(names[1], [1.0, 2.0, 3.0, 4.0, f64::INFINITY], 1.0),
            Line::box_of("of nothing", [f64::NAN; 5], 0.0),
        ],
    };
    for svg in drawings(&figure) {
        assert_eq!(svg.matches("class=\"box\"").count(), 2);
        assert!(!svg.contains("NaN") && !svg.contains("no data"), "{svg}");
        let named = texts(&svg, "axis");
        assert!(named.iter().any(|text| text == "sfq"), "{named:?}");
    }
}

#[test]
fn requested_styles_are_kept_and_others_take_free_ones() {
    let line = |label, style| Line::straight(label, vec![(0.0, 0.0), (1.0, 1.0)]).styled(style);
    let figure = Figure {
        title: "latency".into(),
        caption: String::new(),
        x: axis(),
        y: Axis::linear("share", ""),
        side: None,
        lines: vec![
            line("bundled", Some(1)),
            line("one", None),
            line("plain", Some(0)),
        ],
    };
    let svg = figure.to_svg();
    for (style, label) in [(1, "bundled"), (2, "one"), (0, "plain")] {
        let class = format!("class=\"line style{style}\"");
        let drawn = svg.lines().find(|line| line.contains(&class));
        let label = format!("data-label=\"{label}\"");
        assert!(drawn.is_some_and(|line| line.contains(&label)), "{svg}");
    }
}

#[test]
fn non_finite_points_still_draw_a_figure() {
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
fn line_is_clipped_at_axis_end() {
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
fn figure_output_is_deterministic() {
    let d = latencies(5000, 30.0);
    assert_eq!(
        both(&[("a", &d)]).map(|f| f.to_svg()),
        both(&[("a", &d)]).map(|f| f.to_svg())
    );
}

#[test]
fn distribution_of_few_samples_is_drawn() {
    for n in 1..12 {
        let d = latencies(n, 30.0);
        for figure in both(&[("pillion", &d)]) {
            for svg in drawings(&figure) {
                assert_apart(&svg);
                assert_eq!(texts(&svg, "label"), ["pillion"]);
            }
        }
    }
}

/// The relative luminance of `#rrggbb` as WCAG defines it.
fn luminance(colour: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        match value <= 0.03928 {
            true => value / 12.92,
            false => ((value + 0.055) / 1.055).powf(2.4),
        }
    };
    0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
}

#[test]
fn label_contrast_suffices_in_light_dark_and_greyscale() {
    let svg = Figure::cdf("", axis(), "", &[]).to_svg();
    let colours = |name: &str| -> Vec<f64> {
        let declared = svg.match_indices(name).map(|(at, _)| at + name.len());
        declared.map(|at| luminance(&svg[at..at + 7])).collect()
    };
    let contrast = |a: f64, b: f64| (a.max(b) + 0.05) / (a.min(b) + 0.05);
    let paper = colours("--paper: ");
    assert_eq!(paper.len(), 2, "light and dark");
    let lines: Vec<_> = (0..6).map(|i| colours(&format!("--line{i}: "))).collect();
    for scheme in 0..2 {
        for line in lines.iter().chain([&colours("--soft: ")]) {
            assert!(contrast(line[scheme], paper[scheme]) >= 4.5);
        }
        assert!(contrast(lines[0][scheme], lines[1][scheme]) >= 1.5);
    }
}
