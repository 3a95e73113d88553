use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::*;
use crate::measure_ref::RATES;

#[test]
fn per_stream_values_have_their_own_quantiles() {
    let run = run("plain", 1.0);
    let thin = &run.measures.groups["thin"];
    let per_stream = |what: &str| thin.named(&format!("retransmitted_packets of streams {what}"));
    assert_eq!(per_stream("p50"), Some(2.0));
    assert_eq!(per_stream("p0"), Some(1.0));
    assert_eq!(per_stream("p100"), Some(40.0));
    let above = per_stream("above 2").unwrap();
    assert!((above - 1.0 / 3.0).abs() < 2e-3, "{above}");
    assert_eq!(thin.named("lost_bytes of streams p50"), None);
    let jain = per_stream("jain").unwrap();
    assert!((jain - 43.0 * 43.0 / (3.0 * 1605.0)).abs() < 1e-9, "{jain}");
}

#[test]
fn jain_index_is_relative_to_each_streams_optimum() {
    let group = |goodputs: &[f64]| GroupMeasures {
        streams: [("received_goodput_bit_per_s".to_owned(), goodputs.to_vec())].into(),
        ..GroupMeasures::default()
    };
    let index = |due: &[(&str, f64)]| {
        let groups = [("thin", group(&[9_600.0])), ("greedy", group(&[990_400.0]))];
        let mut measures = RunMeasures {
            groups: groups.map(|(name, it)| (name.to_owned(), it)).into(),
            ..RunMeasures::default()
        };
        let due = due.iter().map(|(name, due)| ((*name).to_owned(), *due));
        measures.add_fairness(&due.collect());
        measures.groups["thin"].named(JAIN_OF_ALL)
    };
    // The thesis's own example: 51 % by throughput only, 1 relative to the optimum.
    assert_eq!(
        index(&[("thin", 9_600.0), ("greedy", 990_400.0)]),
        Some(1.0)
    );
    let even = index(&[("thin", 1.0), ("greedy", 1.0)]).unwrap();
    assert!((even - 0.51).abs() < 0.005, "{even}");
    assert_eq!(index(&[("thin", 9_600.0)]), None);
}

#[test]
fn measured_rows_follow_each_published_table_line() {
    let column = |label: &str, measure: &str, counts| Heading {
        label: label.to_owned(),
        measure: measure.to_owned(),
        counts,
        ..Heading::default()
    };
    let line = |runs: &str| Line {
        label: runs.to_owned(),
        runs: parts(runs),
        group: "thin".to_owned(),
        published: vec![Cell::Number(1100.0), Cell::Words("<1".to_owned())],
        ..Line::default()
    };
    let table = |lines| PublishedTable {
        title: "Latency and loss".to_owned(),
        source: "a paper, table 1".to_owned(),
        // Runs last 10 s.
        duration: Some(50.0),
        columns: vec![
            column("p97", P97, false),
            column("loss", "lost_data_packets_share", true),
        ],
        lines,
    };
    let result = ExperimentResult {
        reproduction: Reproduction {
            table: vec![
                table(vec![line("plain"), line("bundled")]),
                table(vec![line("unheard-of")]),
            ],
            ..published("kernel=old", "the kernel is old", Vec::new())
        },
        runs: runs(),
        ..ExperimentResult::default()
    };
    let filled: Vec<_> = result.tables().collect();
    let [table] = filled.as_slice() else {
        panic!("nothing of the second one was run: {filled:?}");
    };
    let text = table.table.to_text();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "plain published 1 100 <1 current kernel 1 067 5.50 % kernel=old 1 940 10.0 %",
        "bundled published 1 100 <1 current kernel 485.0 2.50 %",
    ] {
        assert!(words.contains(line), "{text}");
    }
    assert_eq!(text.matches("kernel=old").count(), 1, "{text}");
    let html = table.table.to_html();
    assert!(html.contains("kernel=old: if the kernel is old. Measured counts are scaled"));
    let csv: Vec<_> = table.csv.lines().collect();
    assert_eq!(csv.len(), 1 + 2 * 2 * 2);
    assert!(csv[1].starts_with("plain,p97,ack_latency_ms p97,1100,current kernel,1067,"));
    assert_eq!(
        csv[7],
        "bundled,p97,ack_latency_ms p97,1100,kernel=old,,,,0"
    );
}

#[test]
fn derived_values_are_measures() {
    let values = [
        ("data_bytes", 1000.0),
        ("new_bytes", 700.0),
        ("message_gap_ms mean", 20.0),
    ];
    let group = GroupMeasures {
        values: values.map(|(name, it)| (name.to_owned(), it)).into(),
        ..GroupMeasures::default()
    };
    assert_eq!(group.named("redundant_bytes"), Some(300.0));
    assert_eq!(group.named("messages_per_s"), Some(50.0));
    assert_eq!(GroupMeasures::default().named("redundant_bytes"), None);
}

#[test]
fn voice_and_typing_measures_follow_message_latency() {
    // 90 % arrive after 65 ms, and the rest after 165 ms.
    let latencies = levels().map(|level| if level < 0.9 { 65.0 } else { 165.0 });
    let latencies = ("delivery_latency_ms".to_owned(), latencies.collect());
    let group = GroupMeasures {
        distributions: [latencies].into(),
        ..GroupMeasures::default()
    };
    let value = |measure| group.named(measure).unwrap();
    let near = |measure, expected: f64| {
        let value: f64 = value(measure);
        assert!((value - expected).abs() < 0.3, "{measure}: {value}");
    };
    // If 10 % are too late to be played, the rating of 93.2 falls by 95 * 10 / (10 + 25.1).
    near("voice_rating at 150", 93.04 - 27.07);
    near("voice_rating at 170", 92.6);
    near("voice_mos at 150", 3.4);
    near("typing_stalls_per_1000 back 65", 101.0);
    near("typing_stalls_per_1000 back 0", 101.0);
    let best = value("voice_rating best");
    assert!(best >= value("voice_rating at 165") && best > value("voice_rating at 65"));
    assert_eq!(GroupMeasures::default().named("voice_mos best"), None);
}

const SERVER: ([u8; 4], u16) = ([198, 51, 100, 1], 80);
const EPOCH_S: f64 = 1_700_000_000.0;

/// A raw IP packet with 20 bytes of payload from a client's port, as in a trace.
fn packet(port: u16, seq: u32) -> Vec<u8> {
    let [port, server] = [port, SERVER.1].map(u16::to_be_bytes);
    let mut packet = vec![0x45, 0, 0, 60];
    packet.extend([port, [0x40, 0], [64, 6], [0; 2]].concat());
    packet.extend([[192, 0, 2, 1], SERVER.0].concat());
    packet.extend([port, server].concat());
    packet.extend([seq, 1].map(u32::to_be_bytes).concat());
    packet.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    packet
}

/// Writes a trace of connections that each send once at the first and once at the second time, in
/// seconds.
fn trace(folder: &Path, name: &str, connections: &[(f64, f64)]) -> PathBuf {
    let mut packets: Vec<(f64, Vec<u8>)> = Vec::new();
    for (port, (from, until)) in (40_000..).zip(connections) {
        packets.extend([(*from, packet(port, 1)), (*until, packet(port, 21))]);
    }
    packets.sort_by(|one, other| one.0.total_cmp(&other.0));
    let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101];
    let mut bytes = header.map(u32::to_le_bytes).concat();
    for (at_s, packet) in packets {
        let microseconds = (at_s.fract() * 1e6).round() as u32;
        let record = [(EPOCH_S + at_s) as u32, microseconds, 40, 60];
        bytes.extend(record.map(u32::to_le_bytes).concat());
        bytes.extend(packet);
    }
    let file = folder.join(name);
    fs::write(&file, bytes).unwrap();
    file
}

#[test]
fn dropped_connections_are_judged_by_sending_time() {
    let folder = tempfile::tempdir().unwrap();
    // They send from 1 s to 11 s; data in transit arrives for another minute.
    let connections = [
        (1.0, 11.0),
        (1.0, 7.0),
        (1.5, 5.5),
        (9.0, 71.0),
        (2.0, 71.0),
    ];
    let [sender, receiver] = ["sender", "receiver"]
        .map(|name| trace(folder.path(), &format!("{name}.pcap"), &connections));
    let groups = [("thin".to_owned(), SocketAddr::from(SERVER))];
    let started_ns = (EPOCH_S + 1.0) as i64 * 1_000_000_000;
    let measures = RunMeasures::read(&sender, &receiver, &groups, started_ns, 10.0).unwrap();
    let thin = &measures.groups["thin"];
    let parses = |name: &str| assert!(name.parse::<MeasureRef>().is_ok(), "{name}");
    thin.values
        .keys()
        .chain(thin.distributions.keys())
        .for_each(|name| parses(name));
    thin.streams
        .keys()
        .for_each(|name| parses(&format!("{name} of streams")));
    thin.slices
        .keys()
        .for_each(|name| parses(&format!("{name} of slices")));
    assert_eq!(thin.slices.len(), RATES.len());
    assert_eq!(thin.named("connections"), Some(5.0));
    assert_eq!(thin.named("dropped"), Some(2.0));
}
