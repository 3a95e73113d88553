//! What the HTML page promises to those who look at it: in a real browser, where there is one.
//!
//! `PILLION_PAGE=FILE cargo test -p pillion-stats --test reports` looks at a page of yours.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use pillion_stats::report::{
    Axis, Choice, Column, Distribution, Fact, Figure, Line, Page, Part, Table,
};
use serde_json::Value;

const PROBE: &str = include_str!("probe.js");
/// Widths in pixels: of a laptop, and of a telephone.
const WIDTHS: [u32; 2] = [1280, 390];

#[test]
fn a_page_is_whole_on_wide_and_narrow_screens_and_its_controls_work() {
    let Some(browser) = browser() else { return };
    let html = match env::var_os("PILLION_PAGE") {
        Some(file) => fs::read_to_string(file).expect("PILLION_PAGE can be read"),
        None => page().to_html(),
    };
    for width in WIDTHS {
        assert_eq!(look(&browser, &html, width), "all is well", "{width}");
    }
}

#[test]
fn what_is_wrong_with_a_page_is_seen() {
    let Some(browser) = browser() else { return };
    let html = page().to_html();
    let breaks = [
        ("<main>", "<main style='min-width: 2000px'>", "2000 wide"),
        (
            "addEventListener(\"click\"",
            "addEventListener(\"dblclick\"",
            "is not pressed",
        ),
        (
            "addEventListener(\"pointermove\"",
            "addEventListener(\"x\"",
            "no read-out",
        ),
        (
            "\"use strict\";",
            "\"use strict\"; missing();",
            "missing is not defined",
        ),
        ("figure[hidden]", "figure[x]", "is not printed"),
        (
            "th.section {",
            "th.section { padding-left: 1300px;",
            "cut off at the right",
        ),
        (
            ".judged { font-size: 14.5px;",
            ".judged { font-size: 18px;",
            "330 ms\"\" is cut off at the right",
        ),
        ("  .options { display: none; }", "", "buttons are printed"),
    ];
    for (intact, broken, complaint) in breaks {
        assert!(html.contains(intact), "{intact}");
        let said = look(&browser, &html.replace(intact, broken), WIDTHS[0]);
        assert!(said.contains(complaint), "{complaint}: {said}");
    }
}

/// What the probe says of a page that is shown so wide, and what the browser says of its scripts.
fn look(browser: &Path, html: &str, width: u32) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("host.html");
    let source = html.replace('&', "&amp;").replace('"', "&quot;");
    let host = format!(
        "<!DOCTYPE html><meta charset=utf-8><body><iframe width={width} height=900 \
         style='border: 0' srcdoc=\"{source}\"></iframe><script>{PROBE}</script>"
    );
    fs::write(&file, host).expect("a page for the browser");
    let out = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--window-size=1400,1000", "--virtual-time-budget=20000"])
        .args(["--enable-logging=stderr", "--log-level=0"])
        .arg(format!("--user-data-dir={}", folder.path().display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("the browser starts");
    let dom = String::from_utf8_lossy(&out.stdout);
    let said = dom.split_once("<pre id=\"said\">");
    let said = said.and_then(|(_, rest)| rest.split_once("</pre>"));
    let log = String::from_utf8_lossy(&out.stderr);
    let errors = log.lines().filter(|line| line.contains("CONSOLE"));
    let errors: Vec<&str> = errors.collect();
    match (said, errors.is_empty()) {
        (Some((said, _)), true) => said.to_owned(),
        (said, _) => format!("{said:?}\n{}", errors.join("\n")),
    }
}

/// Chromium, if it is there; `make test` says if it is not.
fn browser() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = env::split_paths(&path).map(|folder| folder.join("chromium"));
    places.find(|place| place.is_file())
}

/// All that a page can hold, with texts as long as they get.
fn page() -> Page {
    let samples = Distribution::new((1..500).map(f64::from));
    let series = [(
        "TCP beside thin streams that are bundled without a limit",
        &samples,
    )];
    let latency = || Axis::linear("ACK latency", "ms");
    let cdf = |title: &str| Figure::cdf(title, latency(), "share of values", &series);
    let tail = |title: &str| Figure::ccdf(title, latency(), "share of values", &series);
    let cause = "if losses are recovered from as in Linux 3.16, with FACK and without RACK";
    let option = |kernel: &str, view: &str| vec![kernel.to_owned(), view.to_owned()];
    let choice = Choice {
        figures: vec![
            (option("today", "as published"), cdf("today")),
            (option("today", "tail"), tail("today, tail")),
            (option(cause, "as published"), cdf(cause)),
        ],
    };
    let heading = "uniform-loss: thin streams with losses that are independent of each other";
    let columns = [
        Column::left("published").wrapped(48),
        Column::right("then"),
        Column::right("today").wrapped(18),
        Column::right("as it was").wrapped(18),
        Column::left("verdict").verdicts(),
        Column::left("because").wrapped(40),
        Column::left("source").wrapped(30),
    ];
    let mut table = Table::new("Published numbers beside ours", columns).leading_on();
    let unbroken = |text: &str| text.replace(' ', "\u{a0}");
    table.section(heading);
    table.row([
        "a number that takes many words to say",
        &unbroken("1 148 000 ± 172 200"),
        &unbroken("34.2 kbit/s ± 26 bit/s"),
        &unbroken("34.2 kbit/s ± 24 bit/s"),
        "undecided",
        cause,
        "LCN 2008, section V.C: \"approximately 330 ms\"",
    ]);
    let boxes = Figure {
        y: Axis::names("", vec!["pfifo, half a BDP".to_owned()]),
        lines: vec![Line::box_of("pfifo", [1.0, 2.0, 3.0, 4.0, 9.0], 0.0)],
        ..cdf("boxes")
    };
    Page {
        title: "Published experiments on thin streams, reproduced".to_owned(),
        lead: "Of 60 published numbers, 50 hold on the kernel of today.".to_owned(),
        parts: vec![
            table.into(),
            Part::Heading(heading.to_owned(), "What was found then.".to_owned()),
            choice.into(),
            tail("one alone").into(),
            boxes.into(),
        ],
        method: vec![Fact::verbatim("command", "pillion ".repeat(40))],
        data: Value::Null,
    }
}
