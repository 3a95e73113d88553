use super::*;

#[test]
fn what_is_said_of_each_stream_has_quantiles_of_its_own() {
    let run = run("plain", 1.0);
    let thin = &run.digest.groups["thin"];
    let of_streams = |what: &str| thin.named(&format!("retransmitted_packets of streams {what}"));
    assert_eq!(of_streams("p50"), Some(2.0));
    assert_eq!(of_streams("p0"), Some(1.0));
    assert_eq!(of_streams("p100"), Some(40.0));
    let above = of_streams("above 2").unwrap();
    assert!((above - 1.0 / 3.0).abs() < 2e-3, "{above}");
    assert_eq!(thin.named("lost_bytes of streams p50"), None);
    let jain = of_streams("jain").unwrap();
    assert!((jain - 43.0 * 43.0 / (3.0 * 1605.0)).abs() < 1e-9, "{jain}");
}

#[test]
fn all_streams_are_set_against_what_each_is_due() {
    let group = |goodputs: &[f64]| GroupDigest {
        streams: [("received_goodput_bit_per_s".to_owned(), goodputs.to_vec())].into(),
        ..GroupDigest::default()
    };
    let index = |due: &[(&str, f64)]| {
        let groups = [("thin", group(&[9_600.0])), ("greedy", group(&[990_400.0]))];
        let mut digest = Digest {
            groups: groups.map(|(name, it)| (name.to_owned(), it)).into(),
            ..Digest::default()
        };
        let due = due.iter().map(|(name, due)| ((*name).to_owned(), *due));
        digest.add_fairness(&due.collect());
        digest.groups["thin"].named(JAIN_OF_ALL)
    };
    // The thesis's own example: 51 % by throughput alone, 1 by what each is due.
    assert_eq!(
        index(&[("thin", 9_600.0), ("greedy", 990_400.0)]),
        Some(1.0)
    );
    let even = index(&[("thin", 1.0), ("greedy", 1.0)]).unwrap();
    assert!((even - 0.51).abs() < 0.005, "{even}");
    assert_eq!(index(&[("thin", 9_600.0)]), None);
}

#[test]
fn a_published_table_has_ours_below_each_of_its_lines() {
    let cell = |name: &str, factor, published| PublishedCell {
        measure: measure(name),
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
    let text = table.table.to_text();
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
    assert_eq!(group.named("redundant_bytes"), Some(300.0));
    assert_eq!(group.named("messages_per_s"), Some(50.0));
    assert_eq!(GroupDigest::default().named("redundant_bytes"), None);
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
    let value = |measure| group.named(measure).unwrap();
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
    assert_eq!(GroupDigest::default().named("voice_mos best"), None);
}
