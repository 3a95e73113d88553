use std::collections::BTreeMap;

use pillion_stats::report::Stream;

use super::*;
use crate::measure_ref::{JAIN_OF_ALL, MeasureRef, levels};
use crate::run_key::Selector;
use crate::settings::experiment::{
    Cause, Cell, Claim, Curve, Expected, FigureKind, Heading, Line, PublishedTable, Reproduction,
    Sketch, Statement, Tolerance,
};

mod figures;
mod measures;
mod verdict;

const P97: &str = "ack_latency_ms p97";

/// A run whose group `thin` has ACK latencies from 0 to 1000 ms times this, and lost this share.
fn run(name: &str, scale: f64) -> DigestedRun {
    let latencies = levels().map(|level| level * 1000.0 * scale).collect();
    let thin = GroupDigest {
        values: BTreeMap::from([("lost_data_packets_share".to_owned(), scale / 100.0)]),
        distributions: BTreeMap::from([("ack_latency_ms".to_owned(), latencies)]),
        streams: BTreeMap::from([("retransmitted_packets".to_owned(), vec![1.0, 2.0, 40.0])]),
        slices: BTreeMap::from([("received_goodput_bit_per_s".to_owned(), vec![2e6, 1e6, 3e6])]),
    };
    let greedy = GroupDigest {
        values: BTreeMap::from([("lost_data_packets_share".to_owned(), 0.02)]),
        ..GroupDigest::default()
    };
    let groups = [("thin".to_owned(), thin), ("greedy".to_owned(), greedy)];
    DigestedRun {
        name: name.into(),
        duration_s: 10.0,
        digest: Digest {
            groups: groups.into(),
            doubts: Vec::new(),
        },
    }
}

fn runs() -> Vec<DigestedRun> {
    vec![
        run("plain,kernel=today,seed=1", 1.0),
        run("plain,kernel=today,seed=2", 1.2),
        run("bundled,kernel=today,seed=1", 0.5),
        run("plain,kernel=then,seed=1", 2.0),
    ]
}

/// The same, of seeds that give nearly the same.
fn close_runs() -> Vec<DigestedRun> {
    vec![
        run("plain,kernel=today,seed=1", 1.099),
        run("plain,kernel=today,seed=2", 1.101),
        run("bundled,kernel=today,seed=1", 0.5495),
        run("plain,kernel=then,seed=1", 2.0),
    ]
}

fn parts(text: &str) -> Selector {
    text.into()
}

fn measure(name: &str) -> MeasureRef {
    name.parse().unwrap()
}

/// A claim as in a file: of the group `thin` in runs called `plain`.
fn claim(statement: Statement) -> Claim {
    let mut claim = Claim {
        what: "a number".to_owned(),
        source: "a paper".to_owned(),
        measure: measure(P97),
        group: "thin".to_owned(),
        runs: parts("plain"),
        value: None,
        within: None,
        at_most: None,
        at_least: None,
        over: None,
        over_group: String::new(),
        over_measure: None,
        minus: None,
        ascending: Vec::new(),
        why: None,
    };
    match statement {
        Statement::Value(value, within) => {
            claim.value = Some(value);
            claim.within = Some(Tolerance::By(within));
        }
        Statement::AtMost(most) => claim.at_most = Some(most),
        Statement::AtLeast(least) => claim.at_least = Some(least),
        Statement::Ascending => claim.ascending = vec![parts("plain"), parts("bundled")],
    }
    claim
}

/// What is published of runs of today and, if `then` is not empty, of those of then.
fn published(then: &str, is: &str, claims: Vec<Claim>) -> Reproduction {
    let cause = Cause {
        runs: parts(then),
        is: is.to_owned(),
    };
    Reproduction {
        today: parts("kernel=today"),
        causes: Some(cause)
            .filter(|_| !then.is_empty())
            .into_iter()
            .collect(),
        published: claims,
        ..Reproduction::default()
    }
}

fn judged(claim: &Claim) -> Judged {
    claim.judge(
        &close_runs(),
        &parts("kernel=today"),
        &[parts("kernel=then")],
    )
}

fn curve(label: &str, runs: &str, group: &str) -> Curve {
    Curve {
        label: label.to_owned(),
        runs: parts(runs),
        group: group.to_owned(),
        ..Curve::default()
    }
}

/// A figure with a curve for each group, of all runs.
fn sketch(kind: FigureKind, name: &str) -> Sketch {
    let of_group = |group, stream| Curve {
        stream: Some(stream),
        ..curve(group, "", group)
    };
    Sketch {
        title: String::new(),
        source: String::new(),
        kind,
        measure: measure(name),
        label: String::new(),
        series: vec![
            of_group("thin", Stream::Plain),
            of_group("greedy", Stream::Greedy),
        ],
        expected: Vec::new(),
        over: None,
        over_label: None,
        from: None,
        max: None,
        log: false,
    }
}

fn expected(label: &str, points: [(f64, f64); 2]) -> Vec<Expected> {
    vec![Expected {
        label: label.to_owned(),
        points: points.into(),
        ..Expected::default()
    }]
}

#[test]
fn the_page_leads_with_how_many_numbers_hold_and_draws_each_kernel() {
    let claims = vec![
        claim(Statement::Value(1000.0, 100.0)),
        claim(Statement::Value(2000.0, 100.0)),
    ];
    let row = Row {
        name: "row".to_owned(),
        title: "what it is about".to_owned(),
        published: Reproduction {
            figure: vec![Sketch {
                title: "ACK latency".to_owned(),
                source: "a paper, figure 1".to_owned(),
                label: "ACK latency".to_owned(),
                series: vec![curve("plain", "plain", "thin")],
                ..sketch(FigureKind::Cdf, "ack_latency_ms")
            }],
            ..published("kernel=then", "the kernel is that of then", claims)
        },
        runs: close_runs(),
        ..Row::default()
    };
    let page = page(&[row], Vec::new()).to_html();
    assert!(page.contains(
        "Of 2 published numbers, 1 holds on the kernel of today, 1 holds where one thing is \
         otherwise, as it was or may have been then."
    ));
    let heading = "<h2 class=\"part\" id=\"to-row-what-it-is-about\">";
    let at = page.find(heading).unwrap();
    assert!(page[..at].contains("href=\"#to-row-what-it-is-about\""));
    let below = &page[at..];
    assert!(below.contains("Of 2 published numbers, 1 holds"));
    let figures = below.split_once("class=\"choice\"").unwrap().1;
    assert_eq!(
        figures.matches("<figure").count(),
        4,
        "both kernels, whole and the tail"
    );
    assert!(page.contains("ACK latency, today"));
    assert!(page.contains("ACK latency, if the kernel is that of then"));
    assert!(page.contains("holds if the kernel is that of then"));
    assert!(page.contains("What explains how much"));
    assert!(page.contains("holds today alone"));
}

#[test]
fn what_no_paper_has_is_counted_apart() {
    let claims = vec![claim(Statement::AtMost(1e9)), claim(Statement::AtMost(0.0))];
    let row = |beyond, claims: &[Claim]| Row {
        published: Reproduction {
            beyond,
            published: claims.to_vec(),
            ..Reproduction::default()
        },
        runs: runs(),
        ..Row::default()
    };
    let rows = [row(false, &claims[..1]), row(true, &claims)];
    assert_eq!(
        page(&rows, Vec::new()).lead,
        "Of 1 published number, 1 holds on the kernel of today. \
         Of 2 expectations beyond the papers, 1 holds on the kernel of today, 1 does not."
    );
    assert_eq!(
        page(&rows[1..], Vec::new()).lead,
        "Of 2 expectations beyond the papers, 1 holds on the kernel of today, 1 does not."
    );
}

#[test]
fn seeds_that_give_the_same_are_told() {
    let alike = "plain,kernel=today";
    let names = [1, 2, 3].map(|seed| format!("{alike},seed={seed}"));
    let of = |scales: [f64; 3]| Row {
        runs: names
            .iter()
            .zip(scales)
            .map(|(it, scale)| run(it, scale))
            .collect(),
        ..Row::default()
    };
    assert_eq!(of([1.0, 1.0, 1.1]).doubts().count(), 0);
    let row = of([1.0, 1.0, 1.0]);
    let found: Vec<_> = row.doubts().collect();
    let [(why, which)] = &found[..] else {
        panic!("{found:?}");
    };
    assert!(why.contains("one test"), "{why}");
    assert_eq!(*which, format!("3 runs, {} the first", names[0]));
}

#[test]
fn what_casts_doubt_on_runs_is_told_with_them() {
    let mut row = Row {
        runs: runs(),
        ..Row::default()
    };
    let html = |row: &Row| page(std::slice::from_ref(row), Vec::new()).to_html();
    assert!(!html(&row).contains("Runs in doubt"));
    let missed = "3 packets miss in the sender's trace";
    for place in [1, 2] {
        row.runs[place].digest.doubts = vec![missed.to_owned()];
    }
    row.runs[2].digest.doubts.push("the queue lies".to_owned());
    let found: Vec<_> = row.doubts().collect();
    let of_two = "2 runs, plain,kernel=today,seed=2 the first".to_owned();
    let of_one = "bundled,kernel=today,seed=1".to_owned();
    assert_eq!(found, [(missed, of_two), ("the queue lies", of_one)]);
    let html = html(&row);
    for cell in [
        "2 runs, plain,kernel=today,seed=2 the first",
        "the queue lies",
    ] {
        assert!(html.contains(cell), "{html}");
    }
}

#[test]
fn every_published_number_has_a_line_for_each_kernel() {
    let not_run = Claim {
        what: "another, \"not run\"".to_owned(),
        runs: parts("unheard-of"),
        ..claim(Statement::AtMost(1.0))
    };
    let row = Row {
        name: "row".to_owned(),
        published: published(
            "kernel=then",
            "it is then",
            vec![
                claim(Statement::Value(2000.0, 100.0)),
                not_run,
                claim(Statement::Ascending),
            ],
        ),
        runs: close_runs(),
        ..Row::default()
    };
    let text = tables::published_csv(&[row]);
    let lines: Vec<_> = text.lines().collect();
    let fields = lines[0].split(',').count();
    assert_eq!(lines.len(), 1 + 2 + 2 + 4, "{text}");
    let start = "row,a number,a paper,ack_latency_ms p97,value,2000,100,changed";
    assert!(
        lines[1].starts_with(&format!("{start},today,plain,1067,")),
        "{text}"
    );
    assert!(lines[1].ends_with(",2,no"), "{text}");
    assert_eq!(
        lines[2],
        format!("{start},kernel=then,plain,1940,1940,1940,1,yes")
    );
    let unknown = "row,\"another, \"\"not run\"\"\",a paper,ack_latency_ms p97,at-most,1,,not run";
    assert_eq!(lines[3], format!("{unknown},today,unheard-of,,,,0,"));
    assert!(
        lines[5].contains(",ascending,,,not run,today,plain,"),
        "{text}"
    );
    let plain = |line: &&&str| !line.contains('"');
    let whole = lines
        .iter()
        .filter(plain)
        .all(|it| it.split(',').count() == fields);
    assert!(whole, "{text}");
}
