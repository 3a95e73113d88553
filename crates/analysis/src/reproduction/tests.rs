use std::collections::BTreeMap;

use super::digest::levels;
use super::*;

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
        name: name.to_owned(),
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

fn parts(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

fn subject(runs: &str, group: &str) -> Subject {
    Subject {
        runs: parts(runs),
        group: group.to_owned(),
    }
}

fn claim(statement: Statement) -> Claim {
    Claim {
        what: "a number".to_owned(),
        source: "a paper".to_owned(),
        measure: P97.to_owned(),
        subject: subject("plain", "thin"),
        over: None,
        over_measure: None,
        minus: None,
        statement,
    }
}

fn judged(claim: &Claim) -> Judged {
    claim.judge(&runs(), &parts("kernel=today"), &[parts("kernel=then")])
}

#[test]
fn a_value_holds_within_its_tolerance() {
    let judged = judged(&claim(Statement::Value(1000.0, 100.0)));
    assert_eq!(judged.verdict, Verdict::Near);
    let estimate = judged.today[0];
    assert_eq!((estimate.mean, estimate.runs), (1067.0, 2));
}

#[test]
fn what_holds_only_as_it_was_then_has_changed_and_the_cause_is_named() {
    let judged = judged(&claim(Statement::Value(2000.0, 100.0)));
    assert_eq!(judged.verdict, Verdict::Changed);
    assert_eq!(judged.shown_by, Some(0));
}

#[test]
fn what_holds_nowhere_is_a_miss() {
    for statement in [
        Statement::Value(5000.0, 100.0),
        Statement::AtMost(10.0),
        Statement::AtLeast(4000.0),
        Statement::Ascending(vec![subject("plain", "thin"), subject("plain", "thin")]),
    ] {
        assert_eq!(judged(&claim(statement)).verdict, Verdict::Miss);
    }
}

#[test]
fn without_the_runs_there_is_no_verdict() {
    let claim = Claim {
        subject: subject("unheard-of", "thin"),
        ..claim(Statement::AtMost(1.0))
    };
    assert_eq!(judged(&claim).verdict, Verdict::NotRun);
}

#[test]
fn an_order_is_of_means() {
    let order = vec![subject("bundled", "thin"), subject("plain", "thin")];
    let judged = judged(&claim(Statement::Ascending(order)));
    assert_eq!(judged.verdict, Verdict::Near);
    assert_eq!(judged.today.len(), 2);
}

#[test]
fn a_proportion_is_taken_seed_by_seed_and_within_the_run_where_it_can_be() {
    let to_greedy = Claim {
        measure: "lost_data_packets_share".to_owned(),
        over: Some(Subject {
            runs: Vec::new(),
            group: "greedy".to_owned(),
        }),
        ..claim(Statement::Value(0.55, 0.01))
    };
    assert_eq!(judged(&to_greedy).verdict, Verdict::Near);
    let to_bundled = Claim {
        over: Some(subject("bundled", "thin")),
        ..claim(Statement::Value(2.0, 0.01))
    };
    let judged = judged(&to_bundled);
    assert_eq!(judged.verdict, Verdict::Near);
    assert_eq!(judged.today[0].runs, 1, "seed 2 has no bundled run");
}

#[test]
fn a_proportion_is_taken_of_the_run_that_is_the_same_but_for_what_is_asked() {
    let runs = [
        run("a,players=1,kernel=today,seed=1", 1.0),
        run("a,players=2,kernel=today,seed=1", 10.0),
        run("b,players=1,kernel=today,seed=1", 2.0),
        run("b,players=2,kernel=today,seed=1", 20.0),
    ];
    let claim = Claim {
        subject: subject("b", "thin"),
        over: Some(subject("a", "thin")),
        ..claim(Statement::Value(2.0, 0.01))
    };
    let judged = claim.judge(&runs, &parts("kernel=today"), &[]);
    assert_eq!(judged.verdict, Verdict::Near, "{judged:?}");
}

#[test]
fn a_proportion_may_be_to_another_measure_of_the_same_run() {
    let claim = Claim {
        over: Some(subject("plain", "thin")),
        over_measure: Some("ack_latency_ms p50".to_owned()),
        ..claim(Statement::Value(1.94, 0.001))
    };
    assert_eq!(judged(&claim).verdict, Verdict::Near);
}

#[test]
fn a_proportion_to_nothing_is_no_value() {
    let claim = Claim {
        measure: "lost_data_packets_share".to_owned(),
        over: Some(subject("none", "thin")),
        ..claim(Statement::AtLeast(1.0))
    };
    let seed_1 = |name, scale| run(&format!("{name},kernel=today,seed=1"), scale);
    for scale in [0.0, 1.0] {
        let runs = [seed_1("plain", scale), seed_1("none", 0.0)];
        let judged = claim.judge(&runs, &parts("kernel=today"), &[]);
        assert_eq!(judged.verdict, Verdict::NotRun, "{judged:?}");
    }
}

#[test]
fn what_does_not_hold_is_no_miss_before_all_causes_were_run() {
    let claim = claim(Statement::Value(5000.0, 100.0));
    let causes = [parts("kernel=then"), parts("kernel=before")];
    let judged = claim.judge(&runs(), &parts("kernel=today"), &causes);
    assert_eq!(judged.verdict, Verdict::NotRun);
    assert!(!judged.today.is_empty());
}

#[test]
fn a_difference_is_taken_of_the_same_seed() {
    let less = Claim {
        minus: Some(subject("bundled", "thin")),
        ..claim(Statement::Value(485.0, 0.1))
    };
    let judged = judged(&less);
    assert_eq!(judged.verdict, Verdict::Near, "{judged:?}");
    assert_eq!(judged.today[0].runs, 1, "seed 2 has no bundled run");
}

#[test]
fn a_measure_may_ask_for_the_share_above_a_bound() {
    let group = &run("any", 1.0).digest.groups["thin"];
    let share = group.value("ack_latency_ms above 900").unwrap();
    assert!((share - 0.1).abs() < 1.5e-3, "{share}");
    assert_eq!(group.value("ack_latency_ms above 2000"), Some(0.0));
    assert_eq!(group.value("ack_latency_ms p50"), Some(500.0));
    assert_eq!(group.value("unheard_of_ms p50"), None);
}

#[test]
fn the_page_leads_with_how_many_numbers_hold_and_draws_each_kernel() {
    let row = Row {
        name: "row".to_owned(),
        title: "what it is about".to_owned(),
        today: parts("kernel=today"),
        causes: vec![(
            parts("kernel=then"),
            "the kernel is that of then".to_owned(),
        )],
        claims: vec![
            claim(Statement::Value(1000.0, 100.0)),
            claim(Statement::Value(2000.0, 100.0)),
        ],
        sketches: vec![Sketch {
            title: "ACK latency".to_owned(),
            source: "a paper, figure 1".to_owned(),
            kind: Kind::Cdf,
            measure: "ack_latency_ms".to_owned(),
            label: "ACK latency".to_owned(),
            curves: vec![Curve {
                label: "plain".to_owned(),
                subject: subject("plain", "thin"),
                measure: None,
                stream: None,
            }],
            from: 0.0,
            max: None,
            log: false,
        }],
        runs: runs(),
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
}

#[test]
fn the_first_curve_of_each_kind_of_streams_has_its_style() {
    let curve = |label: &str, stream| Curve {
        label: label.to_owned(),
        subject: subject("plain", "thin"),
        measure: None,
        stream,
    };
    let sketch = Sketch {
        title: String::new(),
        source: String::new(),
        kind: Kind::Cdf,
        measure: "ack_latency_ms".to_owned(),
        label: String::new(),
        curves: vec![
            curve("bundled", Some(Stream::Bundled)),
            curve("bundled more", Some(Stream::Bundled)),
            curve("not known", None),
            curve("plain", Some(Stream::Plain)),
        ],
        from: 0.0,
        max: None,
        log: false,
    };
    let figure = sketch.draw(&runs(), &[], "today").unwrap();
    let named = figure.lines.iter().filter(|line| !line.label.is_empty());
    let styles: Vec<_> = named.map(|line| line.style).collect();
    assert_eq!(styles, [Some(1), Some(3), Some(4), Some(0)]);
}

#[test]
fn what_is_said_of_each_stream_has_quantiles_of_its_own() {
    let run = run("plain", 1.0);
    let thin = &run.digest.groups["thin"];
    let of_streams = |what: &str| thin.value(&format!("retransmitted_packets of streams {what}"));
    assert_eq!(of_streams("p50"), Some(2.0));
    assert_eq!(of_streams("p0"), Some(1.0));
    assert_eq!(of_streams("p100"), Some(40.0));
    assert_eq!(of_streams("p"), None);
    let above = of_streams("above 2").unwrap();
    assert!((above - 1.0 / 3.0).abs() < 2e-3, "{above}");
    assert_eq!(thin.value("lost_bytes of streams p50"), None);
    let jain = of_streams("jain").unwrap();
    assert!((jain - 43.0 * 43.0 / (3.0 * 1605.0)).abs() < 1e-9, "{jain}");
    assert_eq!(unit("retransmitted_packets of streams jain").symbol(), "");
}

#[test]
fn a_published_table_has_ours_below_each_of_its_lines() {
    let cell = |measure: &str, factor, published| PublishedCell {
        measure: measure.to_owned(),
        subject: subject("plain", "thin"),
        factor,
        published,
    };
    let line = |runs: &str| {
        let mut cells = vec![
            cell(P97, 1.0, PublishedValue::Number(1100.0)),
            cell(
                "lost_data_packets_share",
                5.0,
                PublishedValue::Words("<1".to_owned()),
            ),
        ];
        for cell in &mut cells {
            cell.subject.runs = parts(runs);
        }
        PublishedLine {
            label: runs.to_owned(),
            cells,
        }
    };
    let table = |lines| PublishedTable {
        title: "Latency and loss".to_owned(),
        source: "a paper, table 1".to_owned(),
        columns: vec!["p97".to_owned(), "loss".to_owned()],
        lines,
    };
    let row = Row {
        today: parts("kernel=today"),
        causes: vec![(parts("kernel=then"), "it is as then".to_owned())],
        tables: vec![
            table(vec![line("plain"), line("bundled")]),
            table(vec![line("unheard-of")]),
        ],
        runs: runs(),
        ..Row::default()
    };
    let filled: Vec<_> = row.tables().collect();
    let [table] = filled.as_slice() else {
        panic!("nothing of the second one was run: {filled:?}");
    };
    let text = table.table.to_text(false);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "plain published 1 100 <1 today 1 067 5.50 % kernel=then 1 940 10.0 %",
        "bundled published 1 100 <1 today 485.0 2.50 %",
    ] {
        assert!(words.contains(line), "{text}");
    }
    assert_eq!(text.matches("kernel=then").count(), 1, "{text}");
    let html = table.table.to_html();
    assert!(html.contains("kernel=then: if it is as then. Our counts are in proportion"));
    let csv: Vec<_> = table.csv.lines().collect();
    assert_eq!(csv.len(), 1 + 2 * 2 * 2);
    assert!(csv[1].starts_with("plain,p97,ack_latency_ms p97,1100,today,1067,"));
    assert_eq!(
        csv[7],
        "bundled,p97,ack_latency_ms p97,1100,kernel=then,,,,0"
    );
}

#[test]
fn what_follows_from_what_is_kept_is_a_measure() {
    let values = [
        ("data_bytes", 1000.0),
        ("new_bytes", 700.0),
        ("message_gap_ms mean", 20.0),
    ];
    let group = GroupDigest {
        values: values.map(|(name, it)| (name.to_owned(), it)).into(),
        ..GroupDigest::default()
    };
    assert_eq!(group.value("redundant_bytes"), Some(300.0));
    assert_eq!(group.value("messages_per_s"), Some(50.0));
    assert_eq!(GroupDigest::default().value("redundant_bytes"), None);
}

#[test]
fn what_people_notice_follows_from_the_latency_of_messages() {
    // 90 % come after 65 ms, and the rest after 165 ms.
    let latencies = levels().map(|level| if level < 0.9 { 65.0 } else { 165.0 });
    let latencies = ("delivery_latency_ms".to_owned(), latencies.collect());
    let group = GroupDigest {
        distributions: [latencies].into(),
        ..GroupDigest::default()
    };
    let value = |measure| group.value(measure).unwrap();
    let near = |measure, expected: f64| {
        let value: f64 = value(measure);
        assert!((value - expected).abs() < 0.3, "{measure}: {value}");
    };
    // 95 * 10 / (10 + 25.1) are taken off 93.2 where 10 % come too late to be played.
    near("voice_rating at 150", 93.04 - 27.07);
    near("voice_rating at 170", 92.6);
    near("voice_mos at 150", 3.4);
    near("typing_stalls_per_1000 back 65", 101.0);
    near("typing_stalls_per_1000 back 0", 101.0);
    let best = value("voice_rating best");
    assert!(best >= value("voice_rating at 165") && best > value("voice_rating at 65"));
    assert_eq!(group.value("voice_rating at once"), None);
    assert_eq!(GroupDigest::default().value("voice_mos best"), None);
}

fn sketch(kind: Kind, measure: &str) -> Sketch {
    let curve = |label: &str, group, stream| Curve {
        label: label.to_owned(),
        subject: Subject {
            runs: Vec::new(),
            group: str::to_owned(group),
        },
        measure: None,
        stream: Some(stream),
    };
    Sketch {
        title: String::new(),
        source: String::new(),
        kind,
        measure: measure.to_owned(),
        label: String::new(),
        curves: vec![
            curve("thin", "thin", Stream::Plain),
            curve("greedy", "greedy", Stream::Greedy),
        ],
        from: 0.0,
        max: None,
        log: false,
    }
}

#[test]
fn what_is_expected_and_a_curves_own_measure_are_in_the_unit_of_the_axis() {
    let kind = Kind::Values {
        over: "n".to_owned(),
        label: "streams".to_owned(),
        expected: vec![("demand".to_owned(), vec![(1.0, 0.01), (8.0, 0.08)])],
    };
    let sketch = sketch(kind, "lost_data_packets_share");
    assert_eq!(sketch.draw(&[], &[], "today"), None, "nothing was run");
    let mut sketch = sketch;
    sketch.curves[1].subject.group = "thin".to_owned();
    sketch.curves[1].measure = Some("retransmitted_packets of streams jain".to_owned());
    let runs = [run("n=1,seed=1", 1.0), run("n=8:1,seed=1", 2.0)];
    let figure = sketch.draw(&runs, &[], "today").unwrap();
    let labels: Vec<_> = figure.lines.iter().map(|line| &*line.label).collect();
    assert_eq!(labels, ["thin", "greedy", "demand"]);
    assert_eq!(figure.lines[0].points, [(1.0, 1.0), (8.0, 2.0)]);
    let jain = 43.0 * 43.0 / (3.0 * 1605.0) * 100.0;
    assert!((figure.lines[1].points[0].1 - jain).abs() < 1e-9);
    assert_eq!(figure.lines[2].points, [(1.0, 1.0), (8.0, 8.0)]);
}

#[test]
fn dots_are_of_each_stream_of_each_seed() {
    let sketch = sketch(Kind::Dots, "retransmitted_packets of streams");
    let figure = sketch.draw(&runs(), &[], "today").unwrap();
    let [thin] = &figure.lines[..] else {
        panic!("greedy streams have no such values: {figure:?}");
    };
    assert_eq!((thin.points.len(), thin.style), (12, Some(0)));
    assert!(thin.points.iter().all(|(_, y)| (y - 1.0).abs() < 0.5));
    assert_eq!(figure.y.names, ["greedy", "thin"]);
}

#[test]
fn a_series_is_the_slices_of_one_run_and_what_was_to_be_expected() {
    let kind = Kind::Series {
        expected: vec![("1 Mbit/s".to_owned(), vec![(0.0, 1e6), (3.0, 1e6)])],
    };
    let sketch = sketch(kind, "received_goodput_bit_per_s of slices");
    let runs = [run("seed=1", 1.0), run("seed=2", 2.0)];
    let figure = sketch.draw(&runs, &[], "today").unwrap();
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
fn what_no_paper_has_is_counted_apart() {
    let claims = vec![claim(Statement::AtMost(1e9)), claim(Statement::AtMost(0.0))];
    let row = |beyond, claims: &[Claim]| Row {
        beyond,
        claims: claims.to_vec(),
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
