//! Checks the HTML page in a real browser, if one is installed.
//!
//! `PILLION_PAGE=FILE cargo test -p pillion-stats --test reports` checks another page.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use pillion_stats::report::{
    Axis, Choice, Column, Fact, Figure, Line, Page, Part, SortedSamples, Table,
};
use serde_json::Value;

const PROBE: &str = include_str!("probe.js");
/// Widths in pixels of a laptop and a phone.
const WIDTHS: [u32; 2] = [1280, 390];

#[test]
fn page_fits_wide_and_narrow_screens_with_working_controls() {
    let Some(browser) = browser() else { return };
    let html = match env::var_os("PILLION_PAGE") {
        Some(file) => fs::read_to_string(file).expect("PILLION_PAGE can be read"),
        None => page().to_html(),
    };
    for width in WIDTHS {
        assert_eq!(inspect(&browser, &html, width), "no findings", "{width}");
    }
}

#[test]
fn browser_check_detects_faulty_pages() {
    let Some(browser) = browser() else { return };
    let html = page().to_html();
    let faults = [
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
        (
            "  .options, .read-out { display: none; }",
            "",
            "buttons are printed",
        ),
        (
            "white-space: pre-wrap;",
            "overflow-x: auto;",
            "pillion \" is cut off",
        ),
        (
            "8pt; }",
            "14pt; white-space: pre; }",
            "cut off at the right on paper",
        ),
    ];
    for (intact, broken, fault) in faults {
        assert!(html.contains(intact), "{intact}");
        let findings = inspect(&browser, &html.replace(intact, broken), WIDTHS[0]);
        assert!(findings.contains(fault), "{fault}: {findings}");
    }
}

/// The probe's findings on a page of this width, and the browser's messages about its scripts.
fn inspect(browser: &Path, html: &str, width: u32) -> String {
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
    let findings = dom.split_once("<pre id=\"findings\">");
    let findings = findings.and_then(|(_, rest)| rest.split_once("</pre>"));
    let log = String::from_utf8_lossy(&out.stderr);
    let errors = log.lines().filter(|line| line.contains("CONSOLE"));
    let errors: Vec<&str> = errors.collect();
    match (findings, errors.is_empty()) {
        (Some((findings, _)), true) => findings.to_owned(),
        (findings, _) => format!("{findings:?}\n{}", errors.join("\n")),
    }
}

/// Chromium, if installed; `make test` reports if it is missing.
fn browser() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut candidates = env::split_paths(&path).map(|folder| folder.join("chromium"));
    candidates.find(|path| path.is_file())
}

/// A page with every kind of part and the longest texts.
fn page() -> Page {
    let samples = SortedSamples::new((1..500).map(f64::from));
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
    let mut table = Table::new("Published numbers beside ours", columns).with_section_links();
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
    let advice = "bundle it: bundles would have repaired 87 % (82 % to 92 %) of 184 losses; a segment \
                  would have waited 13.6 (12.8 to 14.4) ms less on average";
    let columns = [
        Column::left("process and service").wrapped(30),
        Column::left("advice").wrapped(80),
    ];
    let mut advice_table = Table::new("Advice", columns);
    advice_table.row(["game-server, port 27015 here (a guess)", advice]);
    let headings = [
        "lost",
        "repairable",
        "saved, ms per segment",
        "saved by copies, at most, ms per segment",
        "bytes added",
    ];
    let columns = ["process and service"].into_iter().chain(headings);
    let mut estimates = Table::new("Estimates", columns.map(Column::left));
    let intervals = ["13.61 % (12.83 % to 14.4 %)"; 5].into_iter();
    estimates.row(
        ["game-server, port 27015 here (a guess)"]
            .into_iter()
            .chain(intervals),
    );
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
            advice_table.into(),
            estimates.into(),
            Part::Heading(heading.to_owned(), "What was found then.".to_owned()),
            choice.into(),
            tail("one alone").into(),
            boxes.into(),
        ],
        method: vec![Fact::verbatim("command", "pillion ".repeat(40))],
        data: Value::Null,
    }
}
