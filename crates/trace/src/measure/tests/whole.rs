use super::*;

#[test]
fn slices_have_throughput_goodput_loss_and_in_flight() {
    let mut script = established();
    script.at(990).data(1, 101).at(1000).data(101, 201);
    script.at(1400).data(101, 201).at(1560).ack(201);
    script.at(1600).close(201);
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[5]);
    let results = measure_both(&here, &there, MeterOptions::default());
    let slices = &results.all.main.slices;
    let slices: Vec<_> = slices
        .iter()
        .map(|(index, slice)| (index, *slice))
        .collect();
    let [(0, first), (1, second)] = slices[..] else {
        panic!("{slices:?}");
    };
    // The first slice has SYN, ACK and data; the data arrives in the second.
    assert_eq!(
        (first.sent_wire_bytes, first.received_wire_bytes),
        (66 + 66 + 166, 66 + 66)
    );
    assert_eq!(
        (second.sent_wire_bytes, second.received_wire_bytes),
        (464, 464)
    );
    assert_eq!((first.acked_bytes, second.acked_bytes), (0, 200));
    assert_eq!((first.readable_bytes, second.readable_bytes), (0, 200));
    assert_eq!((first.data_packets, second.data_packets), (1, 2));
    assert_eq!(
        (second.lost_data_packets, second.retransmitted_packets),
        (1, 1)
    );
    assert_eq!((second.max_in_flight, second.in_flight_sum), (2, 3));
}

#[test]
fn groups_are_aggregated_with_their_own_optimum() {
    let mut all = Script::new();
    for (port, bytes) in [(5000, 100), (5001, 100), (80, 900)] {
        let mut script = Script::new();
        script.server = endpoint(&format!("198.51.100.1:{port}"));
        script.handshake();
        script.at(100).data(1, bytes + 1).at(200).ack(bytes + 1);
        script.at(1000).close(bytes + 1);
        all.packets.extend(script.packets);
    }
    all.packets.sort_by_key(|packet| packet.at_ns);
    let groups = ["thin=:5000-5999", "greedy=:80", "none=:1"];
    let groups: Vec<Group> = groups.map(|group| group.parse().unwrap()).into();
    let options = MeterOptions {
        groups,
        optimum_of_group: vec![("thin".into(), 1000.0), ("greedy".into(), 9000.0)],
        ..MeterOptions::default()
    };
    let results = measure(&all, options);
    let [thin, greedy, none] = &results.groups[..] else {
        panic!("{:?}", results.groups);
    };
    assert_eq!(
        (thin.handshakes.connections, greedy.handshakes.connections),
        (2, 1)
    );
    assert_eq!(thin.main.sent.counts.payload_bytes, 200);
    assert_eq!(thin.main.latency.ack_latency.len(), 2);
    assert_eq!(thin.fairness.jain_index, Some(1.0));
    assert_eq!(
        (none.handshakes.connections, none.fairness.jain_index),
        (0, None)
    );
    assert_eq!(results.all.main.sent.counts.payload_bytes, 1100);
    assert_eq!(results.connections[2].groups, ["greedy"]);
    let wire = |index: usize| results.connections[index].throughput_bit_per_s;
    // Five packets of 66 bytes plus payload, in one second.
    assert_eq!(
        (wire(0), wire(2)),
        (8.0 * (5.0 * 66.0 + 100.0), 8.0 * (5.0 * 66.0 + 900.0))
    );
    let relative = [wire(0) / 1000.0, wire(1) / 1000.0, wire(2) / 9000.0];
    assert_eq!(
        results.all.fairness.jain_index_relative_to_optimum,
        jain_index(relative)
    );
}

#[test]
fn connections_are_counted_by_outcome() {
    let mut script = Script::new();
    script.handshake().at(10).data(1, 101).at(900).ack(101);
    script.client = endpoint("192.0.2.1:2");
    script.handshake();
    script.packet(Backward, 1, 0).flags.rst = true;
    script.client = endpoint("192.0.2.1:3");
    script.syn();
    script.packet(Backward, 0, 0).flags.rst = true;
    script.client = endpoint("192.0.2.1:4");
    script.syn();
    script.at(2000).syn();
    script.client = endpoint("192.0.2.1:5");
    script.data(1, 2);
    let results = measure(&script, MeterOptions::default());
    let all = results.all.handshakes;
    assert_eq!((all.connections, all.tried, all.completed), (5, 4, 2));
    assert_eq!((all.refused, all.unanswered, all.reset), (1, 1, 1));
    assert_eq!((all.tried_again, all.without_data, all.syns), (1, 3, 5));
    assert_eq!(
        (all.dropped, all.never_established, all.problematic),
        (4, 2, 5)
    );
    assert_eq!(results.connections[0].outcome, ConnectionOutcome::Completed);
    assert_eq!(results.connections[0].duration_s, 0.9);
}

#[test]
fn reconnected_stream_is_counted_by_addresses_and_ports() {
    let mut script = Script::new();
    // Two attempts without an answer, with other initial sequence numbers, then a third with data.
    for (at, isn) in [(0, 1000), (20_000, 5000)] {
        script.initial[0] = isn;
        script.at(at).syn();
    }
    script.initial[0] = 9000;
    script
        .at(40_000)
        .handshake()
        .at(41_000)
        .data(1, 101)
        .at(80_000)
        .ack(101);
    let counts = |streams_by_address| {
        let options = MeterOptions {
            streams_by_address,
            ..MeterOptions::default()
        };
        let all = measure(&script, options).all.handshakes;
        (
            all.connections,
            all.never_established,
            all.without_data,
            all.problematic,
        )
    };
    assert_eq!(counts(false), (3, 2, 2, 2));
    assert_eq!(counts(true), (1, 0, 0, 0));
}

#[test]
fn connection_shorter_than_half_of_test_is_dropped() {
    let mut all = Script::new();
    // A test from 1 s to 11 s, after which a backlog drains for a minute.
    for (port, from, until) in [
        (1, 900, 11_000),
        (2, 1000, 6000),
        (3, 1000, 5999),
        (4, 0, 5900),
        (5, 8000, 71_000),
        (6, 2000, 71_000),
    ] {
        all.client = endpoint(&format!("192.0.2.1:{port}"));
        all.at(from).data(1, 101).at(until).ack(101);
    }
    all.packets.sort_by_key(|packet| packet.at_ns);
    let dropped = |test_ns| {
        let options = MeterOptions {
            test_ns,
            ..MeterOptions::default()
        };
        let handshakes = measure(&all, options).all.handshakes;
        assert_eq!(handshakes.problematic, handshakes.dropped);
        handshakes.dropped
    };
    assert_eq!(dropped(Some(1000 * MS..11_000 * MS)), 3);
    // By the whole trace, all except connections present while it drained.
    assert_eq!(dropped(None), 4);
    assert_eq!(dropped(Some(0..6000 * MS)), 1);
}

#[test]
fn empty_trace_has_empty_results() {
    let results = measure(&Script::new(), MeterOptions::default());
    assert_eq!((results.duration_s, results.connections.len()), (0.0, 0));
    assert!(serde_json::to_string(&results).is_ok());
}

#[test]
fn serialised_times_are_milliseconds_with_unit_suffix() {
    let (here, there) = carry(&one_loss(), ONE_WAY, AHEAD, &[4]);
    let results = measure_both(&here, &there, MeterOptions::default());
    let json = serde_json::to_value(&results).unwrap();
    let connection = &json["connections"][0];
    assert_eq!(connection["sender"], "192.0.2.1:40000");
    assert_eq!(connection["outcome"], "completed");
    assert_eq!(connection["handshake_ms"], 150.0);
    for main in [&connection["main"], &json["all"]["main"]] {
        assert_eq!(main["ack_latency_ms"]["p50"], 390.0);
        assert_eq!(main["application_latency_ms"]["max"], 375.0);
        assert_eq!(main["payload_bytes"]["mean"], 120.0);
        assert_eq!(main["sent"]["redundant_share"], 2.0 / 6.0);
        assert_eq!(main["loss"]["lost_data_packets"], 1);
        assert_eq!(main["loss"]["loss_runs"][0], 1);
        assert_eq!(main["head_of_line"]["wait_ms"]["count"], 3);
        assert_eq!(main["slices"][0]["start_s"], 0.0);
        assert_eq!(main["slices"][0]["lost_data_packets"], 1);
    }
}

/// Messages of 100 bytes each 100 ms from 200 ms on, each bundled with the previous one and
/// acknowledged after 150 ms.
fn ten_bundled() -> Script {
    let mut script = established();
    for message in 0..10 {
        let start = message * 100 + 1;
        let bundled = if message == 0 { start } else { start - 100 };
        script.at(200 + message * 100).data(bundled, start + 100);
        script.at(350 + message * 100).ack(start + 100);
    }
    script.packets.sort_by_key(|packet| packet.at_ns);
    for (number, packet) in (1..).zip(&mut script.packets) {
        packet.number = number;
    }
    script
}

fn from(ms: i64) -> Period {
    Period {
        from: Some(TimePoint::After(ms * MS)),
        until: None,
    }
}

fn until(ms: i64) -> Period {
    Period {
        from: None,
        until: Some(TimePoint::After(ms * MS)),
    }
}

fn measure_part(script: &Script, period: Period) -> Results {
    let mut analysis = Analysis::with_period(Meter::new(MeterOptions::default()), period);
    for packet in &script.packets {
        analysis.packet(packet);
    }
    analysis.finish().finish()
}

#[test]
fn latency_belongs_to_period_of_transmission() {
    let results = measure_part(&ten_bundled(), from(600));
    let main = &results.connections[0].main;
    // One of the later ACKs is for an earlier transmission.
    assert_eq!(ms(&main.latency.ack_latency), [(150, 6)]);
    assert_eq!(main.latency.ack_latency.len(), 6);
    assert_eq!(ms(&main.spacing.itt), [(100, 5)]);
    let acked: u64 = main.slices.iter().map(|(_, slice)| slice.acked_bytes).sum();
    assert_eq!(acked, 700);
}

#[test]
fn bytes_sent_before_period_stay_known() {
    let results = measure_part(&ten_bundled(), from(600));
    let connection = &results.connections[0];
    let counts = connection.main.sent.counts;
    assert_eq!((counts.bundled_packets, counts.new_packets), (6, 0));
    assert_eq!((counts.new_bytes, counts.bundled_bytes), (600, 600));
    assert_eq!(connection.main.spacing.in_flight.min(), Some(1));
    assert_eq!(connection.outcome, ConnectionOutcome::Completed);
    assert_eq!((connection.start_s, connection.duration_s), (0.0, 0.65));
}

#[test]
fn counts_of_periods_add_up_to_whole_trace() {
    let script = ten_bundled();
    let counts = |period| {
        measure_part(&script, period).connections[0]
            .main
            .sent
            .counts
    };
    for ms in [100, 200, 455, 600, 1000] {
        let (mut parts, all) = (counts(until(ms)), counts(Period::default()));
        parts += counts(from(ms));
        assert_eq!(parts, all, "parts before and from {ms} ms");
    }
}

#[test]
fn period_excludes_ended_connections_and_keeps_numbers() {
    let mut script = one_message();
    script.client = endpoint("192.0.2.1:40001");
    script.initial = [5, 6];
    script.at(5000).handshake();
    let results = measure_part(&script, from(4000));
    let numbers = results
        .connections
        .iter()
        .map(|connection| connection.number);
    assert_eq!(numbers.collect::<Vec<_>>(), [2]);
}

#[test]
fn data_in_flight_belongs_to_period_of_transmission() {
    let mut script = ten_bundled();
    // Lost bytes are acknowledged with the packet that delivers them.
    script.packets.retain(|packet| packet.number != 10);
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[7]);
    let whole = measure_both(&here, &there, MeterOptions::default());
    for ms in [205, 340, 600, 930] {
        let pair = pair::PairOptions {
            period: from(ms),
            ..pair::PairOptions::default()
        };
        let later = measure_pair(&here, &there, &pair, MeterOptions::default());
        let pair = pair::PairOptions {
            period: until(ms),
            ..pair::PairOptions::default()
        };
        let before = measure_pair(&here, &there, &pair, MeterOptions::default());
        let sent_before = before.all.main.sent.counts.data_packets;
        let expected = whole.all.main.sent.counts.data_packets - sent_before;
        let main = &later.all.main;
        let loss = main.loss.as_ref().unwrap();
        assert_eq!(loss.data_packets, expected, "from {ms} ms");
        assert_eq!(main.delay.application.len(), expected, "from {ms} ms");
        assert_eq!(
            main.delay.one_way.len() + loss.delivery_stats.lost_data_packets,
            expected
        );
        assert_eq!(
            (
                loss.delivery_stats.unseen_bytes,
                loss.delivery_stats.unmatched_packets
            ),
            (0, 0)
        );
        let delivered = loss.delivery_stats.delivered_bytes;
        // The next packet delivers the new bytes of the lost one.
        assert_eq!(delivered, 100 * expected, "from {ms} ms");
        let back = later.all.back.loss.as_ref().unwrap();
        assert_eq!(
            (
                back.delivery_stats.unknown_packets,
                back.delivery_stats.lost_packets
            ),
            (0, 0)
        );
    }
}

#[test]
fn csv_tables_have_one_header_and_one_row_per_subject() {
    let (here, there) = carry(&one_loss(), ONE_WAY, AHEAD, &[4]);
    let options = MeterOptions {
        groups: vec!["thin=:80".parse().unwrap()],
        ..MeterOptions::default()
    };
    let results = measure_both(&here, &there, options);
    let folder = tempfile::tempdir().unwrap();
    let written = write_tables(&results, &folder.path().join("new")).unwrap();
    let read = |name: &str| {
        let path = folder.path().join("new").join(name);
        assert!(written.contains(&path), "{written:?}");
        std::fs::read_to_string(path).unwrap()
    };
    let all: Vec<String> = read("ack_latency_ms.csv").lines().map(Into::into).collect();
    assert_eq!(
        all[..5],
        [
            "scope,name,direction,share_at_most,ack_latency_ms",
            "all,,main,0.25,360",
            "all,,main,0.5,390",
            "all,,main,0.75,420",
            "all,,main,1,450",
        ]
    );
    assert_eq!(all[5], "group,thin,main,0.25,360");
    assert_eq!(all[9], "connection,1,main,0.25,360");
    assert_eq!(all.len(), 13);
    assert_eq!(
        read("retransmissions.csv").lines().nth(1),
        Some("all,,main,1,1,0")
    );
    assert_eq!(
        read("head_of_line.csv"),
        "scope,name,direction,position,ranges,bytes,longest_ms\nconnection,1,main,1,3,300,270.0\n"
    );
    for name in [
        "connections",
        "groups",
        "sent",
        "loss",
        "slices",
        "loss_runs",
    ] {
        let text = read(&format!("{name}.csv"));
        let mut lines = text.lines().map(|line| line.split(',').count());
        let columns = lines.next().unwrap();
        assert!(columns > 4 && lines.clone().count() > 0, "{name}: {text}");
        assert!(lines.all(|line| line == columns), "{name}: {text}");
    }
}

#[test]
fn csv_tables_without_rows_are_not_written() {
    let results = measure(&one_message(), MeterOptions::default());
    let folder = tempfile::tempdir().unwrap();
    let written = write_tables(&results, folder.path()).unwrap();
    let there = |name: &str| folder.path().join(name).exists();
    assert!(there("rtt_ms.csv") && written.contains(&folder.path().join("rtt_ms.csv")));
    assert!(!there("loss.csv") && !there("one_way_delay_ms.csv"));
    assert_eq!(
        written.len(),
        std::fs::read_dir(folder.path()).unwrap().count()
    );
}

#[test]
fn csv_tables_are_replaced_atomically_or_removed() {
    use std::fs::{self, File};
    let results = measure(&one_message(), MeterOptions::default());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["rtt_ms.csv", "loss.csv"] {
        fs::write(path(name), "old").unwrap();
    }
    let open_file = File::open(path("rtt_ms.csv")).unwrap();
    let written = write_tables(&results, folder.path()).unwrap();
    assert_eq!(std::io::read_to_string(open_file).unwrap(), "old");
    assert_ne!(fs::read_to_string(path("rtt_ms.csv")).unwrap(), "old");
    assert!(!path("loss.csv").exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), written.len());
}

#[test]
fn unwritable_folder_is_named_in_error() {
    let results = measure(&Script::new(), MeterOptions::default());
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = write_tables(&results, &file.path().join("tables")).unwrap_err();
    assert!(error.to_string().contains("tables"), "{error}");
}
