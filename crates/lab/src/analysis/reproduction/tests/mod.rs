use std::collections::BTreeMap;

use pillion_stats::report::StreamKind;

use super::*;
use crate::measure_ref::{JAIN_OF_ALL, MeasureRef, levels};
use crate::run_key::Selector;
use crate::settings::experiment::{
    Against, Cause, Cell, Claim, ClaimKind, Curve, Expected, FigureKind, Heading, Line,
    PublishedTable, Reproduction, Sketch, Statement, Tolerance,
};

mod figures;
mod measures;
mod verdict;

const P97: &str = "ack_latency_ms p97";

/// A run whose group `thin` has ACK latencies from 0 to 1000 ms times `scale`, and a loss of
/// `scale` per cent.
fn run(name: &str, scale: f64) -> MeasuredRun {
    let latencies = levels().map(|level| level * 1000.0 * scale).collect();
    let thin = GroupMeasures {
        values: BTreeMap::from([("lost_data_packets_share".to_owned(), scale / 100.0)]),
        distributions: BTreeMap::from([("ack_latency_ms".to_owned(), latencies)]),
        streams: BTreeMap::from([("retransmitted_packets".to_owned(), vec![1.0, 2.0, 40.0])]),
        slices: BTreeMap::from([("received_goodput_bit_per_s".to_owned(), vec![2e6, 1e6, 3e6])]),
    };
    let greedy = GroupMeasures {
        values: BTreeMap::from([("lost_data_packets_share".to_owned(), 0.02)]),
        ..GroupMeasures::default()
    };
    let groups = [("thin".to_owned(), thin), ("greedy".to_owned(), greedy)];
    MeasuredRun {
        name: name.into(),
        duration_s: 10.0,
        measures: RunMeasures {
            groups: groups.into(),
            warnings: Vec::new(),
        },
    }
}

fn runs() -> Vec<MeasuredRun> {
    vec![
        run("plain,kernel=current,seed=1", 1.0),
        run("plain,kernel=current,seed=2", 1.2),
        run("bundled,kernel=current,seed=1", 0.5),
        run("plain,kernel=old,seed=1", 2.0),
    ]
}

/// The same runs, with nearly equal results for both seeds.
fn close_runs() -> Vec<MeasuredRun> {
    vec![
        run("plain,kernel=current,seed=1", 1.099),
        run("plain,kernel=current,seed=2", 1.101),
        run("bundled,kernel=current,seed=1", 0.5495),
        run("plain,kernel=old,seed=1", 2.0),
    ]
}

fn parts(text: &str) -> Selector {
    text.into()
}

fn measure(name: &str) -> MeasureRef {
    name.parse().unwrap()
}

/// A claim about the group `thin` in runs named `plain`.
fn claim(statement: Statement) -> Claim {
    let mut claim = Claim {
        description: "a number".to_owned(),
        kind: None,
        source: "a paper".to_owned(),
        quote: String::new(),
        against: None,
        measure: measure(P97),
        group: "thin".to_owned(),
        runs: parts("plain"),
        value: None,
        tolerance: None,
        at_most: None,
        at_least: None,
        ratio_to: None,
        ratio_to_group: String::new(),
        ratio_to_measure: None,
        minus: None,
        ascending: Vec::new(),
        reason: None,
    };
    match statement {
        Statement::Value(value, tolerance) => {
            claim.value = Some(value);
            claim.tolerance = Some(Tolerance::By(tolerance));
        }
        Statement::AtMost(most) => claim.at_most = Some(most),
        Statement::AtLeast(least) => claim.at_least = Some(least),
        Statement::Ascending => claim.ascending = vec![parts("plain"), parts("bundled")],
    }
    claim
}

/// A reproduction with the baseline `kernel=current`, and with one cause if `old` is not empty.
fn published(old: &str, description: &str, claims: Vec<Claim>) -> Reproduction {
    let cause = Cause {
        description: description.to_owned(),
        ..cause(old)
    };
    Reproduction {
        baseline: parts("kernel=current"),
        causes: Some(cause)
            .filter(|_| !old.is_empty())
            .into_iter()
            .collect(),
        claims,
        ..Reproduction::default()
    }
}

/// A cause that a paper documents.
fn cause(runs: &str) -> Cause {
    Cause {
        runs: parts(runs),
        description: runs.to_owned(),
        source: "a paper".to_owned(),
    }
}

fn judged(claim: &Claim) -> JudgedClaim {
    claim.judge(
        &close_runs(),
        &parts("kernel=current"),
        &[cause("kernel=old")],
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
            of_group("thin", StreamKind::Plain),
            of_group("greedy", StreamKind::Greedy),
        ],
        expected: Vec::new(),
        x: None,
        x_label: None,
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
fn page_starts_with_counts_and_draws_each_kernel() {
    let published_claim = |statement| Claim {
        kind: Some(ClaimKind::Published),
        quote: "the paper's words".to_owned(),
        ..claim(statement)
    };
    let claims = vec![
        published_claim(Statement::Value(1000.0, 100.0)),
        published_claim(Statement::Value(2000.0, 100.0)),
        claim(Statement::AtMost(0.0)),
    ];
    let result = ExperimentResult {
        name: "row".to_owned(),
        title: "a title".to_owned(),
        reproduction: Reproduction {
            finding: "Something was found.".to_owned(),
            figure: vec![Sketch {
                title: "ACK latency".to_owned(),
                source: "a paper, figure 1".to_owned(),
                label: "ACK latency".to_owned(),
                series: vec![curve("plain", "plain", "thin")],
                ..sketch(FigureKind::Cdf, "ack_latency_ms")
            }],
            ..published("kernel=old", "the kernel is an old one", claims)
        },
        runs: close_runs(),
        ..ExperimentResult::default()
    };
    let page = page(&[result], Vec::new()).to_html();
    let lead = "2 published statements: 1 holds on the current kernel, \
                1 only with a documented difference of the published set-up.";
    assert!(page.contains(lead));
    assert!(page.contains("1 own expectation: 0 hold on the current kernel, 1 not at all."));
    let heading = "<h2 class=\"part\" id=\"to-row-a-title\">";
    let (overview, details) = page.split_once(heading).unwrap();
    assert!(overview.contains("class=\"card\" href=\"#to-row-a-title\""));
    assert!(
        overview.contains("published statements: 1 near, 1 changed"),
        "own expectations are not counted here"
    );
    assert!(overview.contains("class=\"figure small\""));
    assert!(details.contains("\u{201c}the paper&#39;s words\u{201d}"));
    let own = details.split_once("Own expectations").unwrap().1;
    assert!(!own[..own.find("</table>").unwrap()].contains(">published<"));
    let figures = details.split_once("class=\"choice\"").unwrap().1;
    assert_eq!(
        figures.matches("<figure").count(),
        4,
        "both kernels, whole and the tail"
    );
    assert!(page.contains("ACK latency, current kernel"));
    assert!(page.contains("ACK latency, if the kernel is an old one"));
    assert!(page.contains("holds if the kernel is an old one (a paper)"));
    assert!(page.contains("Claims that hold with each cause"));
    assert!(page.contains("holds only on the current kernel"));
}

#[test]
fn each_kind_of_claim_has_its_own_section() {
    let of_kind = |kind| Claim {
        kind: Some(kind),
        ..claim(Statement::AtMost(1e9))
    };
    let result = ExperimentResult {
        name: "row".to_owned(),
        title: "a title".to_owned(),
        reproduction: published("", "", ClaimKind::ALL.map(of_kind).to_vec()),
        runs: runs(),
        ..ExperimentResult::default()
    };
    let text = summary_table(std::slice::from_ref(&result)).to_text();
    let sections = text
        .lines()
        .filter(|line| line.trim_start().starts_with("row: a title"));
    let sections: Vec<_> = sections.map(str::trim).collect();
    assert_eq!(
        sections,
        [
            "row: a title",
            "row: a title, derived numbers",
            "row: a title, self-checks",
            "row: a title, own expectations"
        ]
    );
    let kinds: Vec<_> = tables::claims_csv(&[result])
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["published", "derived", "self-check", "expectation"]);
}

#[test]
fn identical_seeds_cause_a_warning() {
    let alike = "plain,kernel=current";
    let names = [1, 2, 3].map(|seed| format!("{alike},seed={seed}"));
    let of = |scales: [f64; 3]| ExperimentResult {
        runs: names
            .iter()
            .zip(scales)
            .map(|(it, scale)| run(it, scale))
            .collect(),
        ..ExperimentResult::default()
    };
    assert_eq!(of([1.0, 1.0, 1.1]).warnings().count(), 0);
    let result = of([1.0, 1.0, 1.0]);
    let found: Vec<_> = result.warnings().collect();
    let [(reason, which)] = &found[..] else {
        panic!("{found:?}");
    };
    assert!(reason.contains("one test"), "{reason}");
    assert_eq!(*which, format!("3 runs, first {}", names[0]));
}

#[test]
fn warnings_of_runs_are_shown_with_run_names() {
    let mut result = ExperimentResult {
        runs: runs(),
        ..ExperimentResult::default()
    };
    let html = |result: &ExperimentResult| page(std::slice::from_ref(result), Vec::new()).to_html();
    assert!(!html(&result).contains("Runs with warnings"));
    let missed = "3 packets are missing in the sender's trace";
    for index in [1, 2] {
        result.runs[index].measures.warnings = vec![missed.to_owned()];
    }
    result.runs[2]
        .measures
        .warnings
        .push("the queue miscounts".to_owned());
    let found: Vec<_> = result.warnings().collect();
    let second_seed = "2 runs, first plain,kernel=current,seed=2".to_owned();
    let of_one = "bundled,kernel=current,seed=1".to_owned();
    assert_eq!(
        found,
        [(missed, second_seed), ("the queue miscounts", of_one)]
    );
    let html = html(&result);
    for cell in [
        "2 runs, first plain,kernel=current,seed=2",
        "the queue miscounts",
    ] {
        assert!(html.contains(cell), "{html}");
    }
}

#[test]
fn claims_csv_has_a_line_per_claim_and_kernel() {
    let not_run = Claim {
        description: "another, \"not run\"".to_owned(),
        runs: parts("unheard-of"),
        ..claim(Statement::AtMost(1.0))
    };
    let result = ExperimentResult {
        name: "row".to_owned(),
        reproduction: published(
            "kernel=old",
            "it is old",
            vec![
                claim(Statement::Value(2000.0, 100.0)),
                not_run,
                claim(Statement::Ascending),
            ],
        ),
        runs: close_runs(),
        ..ExperimentResult::default()
    };
    let text = tables::claims_csv(&[result]);
    let lines: Vec<_> = text.lines().collect();
    let fields = lines[0].split(',').count();
    assert_eq!(lines.len(), 1 + 2 + 2 + 4, "{text}");
    let start = "row,expectation,a number,a paper,,ack_latency_ms p97,value,2000,100,changed,";
    assert!(
        lines[1].starts_with(&format!("{start},current kernel,plain,1067,")),
        "{text}"
    );
    assert!(lines[1].ends_with(",2,no"), "{text}");
    assert_eq!(
        lines[2],
        format!("{start},kernel=old,plain,1940,1940,1940,1,yes")
    );
    let unknown = "row,expectation,\"another, \"\"not run\"\"\",a paper,,ack_latency_ms p97,at-most,1,,not run,";
    assert_eq!(
        lines[3],
        format!("{unknown},current kernel,unheard-of,,,,0,")
    );
    assert!(
        lines[5].contains(",ascending,,,not run,,current kernel,plain,"),
        "{text}"
    );
    let plain = |line: &&&str| !line.contains('"');
    let whole = lines
        .iter()
        .filter(plain)
        .all(|it| it.split(',').count() == fields);
    assert!(whole, "{text}");
}
