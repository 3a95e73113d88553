use super::*;

#[test]
fn every_published_number_has_a_line_for_each_kernel() {
    let not_run = Claim {
        what: "another, \"not run\"".to_owned(),
        subject: subject("unheard-of", "thin"),
        ..claim(Statement::AtMost(1.0))
    };
    let order = ["plain", "bundled"].map(|runs| subject(runs, "thin"));
    let row = Row {
        name: "row".to_owned(),
        today: parts("kernel=today"),
        causes: vec![(parts("kernel=then"), "it is then".to_owned())],
        claims: vec![
            claim(Statement::Value(2000.0, 100.0)),
            not_run,
            claim(Statement::Ascending(order.into())),
        ],
        runs: close_runs(),
        ..Row::default()
    };
    let text = published_csv(&[row]);
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
