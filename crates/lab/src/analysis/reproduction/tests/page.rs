use super::*;

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
            measure: measure("ack_latency_ms"),
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
