use super::{Group, Meter, Options, Results};
use crate::Direction::Backward;
use crate::packet::Packet;
use crate::script::{MS, Script, carry, endpoint, established, one_message, repaired_by_a_bundle};
use crate::{Analysis, Outcome, pair};

const ONE_WAY: i64 = 75 * MS;
const AHEAD: i64 = 3_600_000 * MS;

fn measure(script: &Script, options: Options) -> Results {
    let mut analysis = Analysis::new(Meter::new(options));
    for packet in &script.packets {
        analysis.packet(packet);
    }
    analysis.finish().finish()
}

fn measure_both(here: &[Packet], there: &[Packet], options: Options) -> Results {
    measure_pair(here, there, &pair::Options::default(), options)
}

fn measure_by_one_clock(here: &[Packet], there: &[Packet]) -> Results {
    let pair = pair::Options {
        same_clock: true,
        ..pair::Options::default()
    };
    measure_pair(here, there, &pair, Options::default())
}

fn measure_pair(
    here: &[Packet],
    there: &[Packet],
    pair: &pair::Options,
    options: Options,
) -> Results {
    let (here, there) = (here.iter().copied(), there.iter().copied());
    let (meter, finding) = pair::analyse(here, there, pair, Meter::new(options));
    meter.finish_pair(&finding.clock)
}

/// Packets 1 to 3 are the handshake, complete at 150 ms.
fn ms(distribution: &super::Distribution) -> Vec<(u64, u64)> {
    let steps = distribution.steps().into_iter();
    steps
        .map(|(ns, times)| (ns / MS.unsigned_abs(), times))
        .collect()
}

/// Four messages, each 30 ms; the first is lost, and the bundle in the third comes too late for
/// it: it is sent again at 500 ms.
fn one_loss() -> Script {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(260).data(101, 301).at(290).data(301, 401);
    script.at(380).ack(1).at(410).ack(1);
    script
        .at(500)
        .data(1, 101)
        .at(650)
        .ack(401)
        .at(700)
        .close(401);
    script
}

#[test]
fn what_is_sent_is_counted_and_what_of_it_is_redundant() {
    let results = measure(&one_loss(), Options::default());
    let sent = &results.all.main.sent;
    assert_eq!(
        (sent.counts.data_packets, sent.counts.payload_bytes),
        (5, 600)
    );
    assert_eq!(
        (sent.counts.bundled_bytes, sent.counts.retransmitted_bytes),
        (100, 100)
    );
    assert_eq!(sent.redundant_share, Some(2.0 / 6.0));
    assert_eq!(sent.bundled_share, Some(1.0 / 6.0));
    assert_eq!(sent.estimated_loss_share, Some(1.0 / 5.0));
    assert_eq!(sent.nth_retransmissions[..2], [1, 0]);
    assert_eq!(sent.duplicate_acks_received, 2);
    assert!(results.all.main.loss.is_none());
    assert!(results.all.main.head_of_line.wait.is_empty());
}

#[test]
fn ack_latency_is_from_the_first_time_sent_to_the_ack_that_covers_it() {
    let results = measure(&one_loss(), Options::default());
    let main = &results.connections[0].main;
    assert_eq!(
        ms(&main.latency.ack_latency),
        [(360, 1), (390, 1), (420, 1), (450, 1)]
    );
    // Its only new ACK covers what was retransmitted.
    assert!(main.latency.rtt.is_empty());
}

#[test]
fn spacing_is_that_of_packets_with_payload() {
    let script = one_loss();
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4]);
    let results = measure_both(&here, &there, Options::default());
    let spacing = &results.connections[0].main.spacing;
    assert_eq!(ms(&spacing.itt), [(30, 3), (210, 1)]);
    assert_eq!(ms(&spacing.iat), [(30, 2), (210, 1)]);
    assert_eq!(spacing.payload.steps(), [(100, 4), (200, 1)]);
    assert_eq!(spacing.packet.steps(), [(166, 4), (266, 1)]);
    assert_eq!(
        spacing.in_flight.steps(),
        [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]
    );
}

#[test]
fn loss_is_told_by_packets_bytes_ranges_and_by_what_was_lost() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(260).data(101, 301).at(290).data(301, 401);
    script.at(380).ack(1).at(410).ack(1);
    script.at(500).data(1, 101).data(201, 301);
    script.at(650).ack(401).at(700).close(401);
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4, 6]);
    let results = measure_both(&here, &there, Options::default());
    let loss = results.all.main.loss.as_ref().unwrap();
    assert_eq!((loss.data_packets, loss.passage.lost_data_packets), (6, 2));
    assert_eq!((loss.data_bytes, loss.passage.lost_bytes), (700, 300));
    assert_eq!(loss.lost_data_packets_share, Some(1.0 / 3.0));
    assert_eq!(loss.lost_bytes_share, Some(3.0 / 7.0));
    assert_eq!((loss.lost_new_bytes, loss.lost_old_bytes), (200, 100));
    assert_eq!((loss.lost_new_packets, loss.lost_bundled_packets), (1, 1));
    assert_eq!((loss.delivered_ranges, loss.lost_ranges), (4, 2));
    assert_eq!(loss.ranges_repaired_by_retransmission, 2);
    assert_eq!(loss.passage.loss_runs[..2], [2, 0]);
}

#[test]
fn the_nth_retransmission_that_is_lost_is_counted_as_that() {
    let mut script = established();
    for at in [200, 500, 1100, 2300] {
        script.at(at).data(1, 101);
    }
    script.at(2450).ack(101).at(2500).close(101);
    let (here, there) = carry(&script, ONE_WAY, 0, &[4, 5, 6]);
    let results = measure_both(&here, &there, Options::default());
    let main = &results.all.main;
    let loss = main.loss.as_ref().unwrap();
    assert_eq!(main.sent.nth_retransmissions[..4], [1, 1, 1, 0]);
    assert_eq!(loss.lost_nth_retransmissions[..4], [1, 1, 0, 0]);
    assert_eq!(loss.lost_retransmitted_packets, 2);
    assert_eq!(
        (loss.passage.longest_loss_run, loss.passage.loss_runs[2]),
        (3, 1)
    );
}

#[test]
fn bundles_that_repair_are_hits() {
    let script = repaired_by_a_bundle();
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4]);
    let results = measure_both(&here, &there, Options::default());
    let loss = results.all.main.loss.as_ref().unwrap();
    assert_eq!(
        (loss.passage.bundle_hits, loss.passage.bundle_misses),
        (1, 1)
    );
    assert_eq!(
        (loss.passage.repaired_bytes, loss.passage.needless_bytes),
        (100, 100)
    );
    assert_eq!(loss.bundle_hit_share, Some(0.5));
    assert_eq!((loss.lost_ranges, loss.ranges_repaired_by_bundle), (1, 1));
}

#[test]
fn delivery_latency_is_told_at_the_transport_and_at_the_application_layer() {
    let script = one_loss();
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4]);
    let results = measure_both(&here, &there, Options::default());
    let delay = &results.connections[0].main.delay;
    assert_eq!(ms(&delay.transport), [(75, 3), (375, 1)]);
    assert_eq!(
        ms(&delay.application),
        [(285, 1), (315, 1), (345, 1), (375, 1)]
    );
    assert_eq!(ms(&delay.one_way), [(75, 4)]);
    assert_eq!(ms(&delay.variation), [(0, 4)]);
    let clock = results.clock.unwrap();
    assert!(
        (clock.ahead_ms.unwrap() - (AHEAD / MS) as f64).abs() < 1e-3,
        "{clock:?}"
    );
    assert!((clock.round_trip_ms.unwrap() - 150.0).abs() < 1e-3);
}

#[test]
fn with_one_clock_an_uneven_path_shows() {
    let script = one_loss();
    let (here, there) = carry(&script, ONE_WAY, 25 * MS, &[4]);
    let own = measure_both(&here, &there, Options::default());
    let same = measure_by_one_clock(&here, &there);
    assert_eq!(ms(&own.all.main.delay.one_way), [(75, 4)]);
    assert_eq!(ms(&same.all.main.delay.one_way), [(100, 4)]);
    assert_eq!(ms(&same.all.main.delay.transport), [(100, 3), (400, 1)]);
}

#[test]
fn one_clock_has_no_offset_whatever_the_delays_are() {
    let script = one_loss();
    let (here, there) = carry(&script, ONE_WAY, 25 * MS, &[4]);
    let clock = measure_by_one_clock(&here, &there).clock.unwrap();
    assert!(clock.same);
    assert_eq!((clock.ahead_ms, clock.drift_ppm), (Some(0.0), Some(0.0)));
    assert!((clock.round_trip_ms.unwrap() - 150.0).abs() < 1e-6);
}

#[test]
fn what_arrives_before_it_leaves_is_counted_and_is_no_delay() {
    let script = one_loss();
    let (here, there) = carry(&script, ONE_WAY, -100 * MS, &[4]);
    let results = measure_by_one_clock(&here, &there);
    let delay = &results.all.main.delay;
    assert!(delay.one_way.is_empty() && delay.variation.len() == 4);
    let untold = delay.untold;
    assert_eq!(untold.negative_delays, 4);
    // The one that was sent again took longer than the clocks are apart.
    assert_eq!((untold.negative_latencies, delay.transport.len()), (3, 1));
}

#[test]
fn of_very_many_packets_by_one_clock_all_count() {
    let mut script = established();
    for message in 0..40_000 {
        script
            .at(200 + message * 10)
            .data(message * 10 + 1, message * 10 + 11);
    }
    script.at(401_000).ack(400_001).at(402_000).close(400_001);
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    for packet in &mut there {
        packet.at_ns += packet.number as i64 % 4 * MS;
    }
    let results = measure_by_one_clock(&here, &there);
    let delay = &results.all.main.delay;
    assert_eq!(
        (delay.one_way.len(), delay.one_way.sample()),
        (40_000, None)
    );
    for (share, ms) in [(0.25, 0), (0.5, 1), (0.75, 2), (1.0, 3)] {
        let found = [&delay.variation, &delay.application].map(|it| it.quantile(share).unwrap());
        let expected = [ms * MS, ms * MS + ONE_WAY].map(i64::unsigned_abs);
        for (found, expected) in found.into_iter().zip(expected) {
            assert!(
                found.abs_diff(expected) <= expected / 1000,
                "{found}, {expected}"
            );
        }
    }
}

#[test]
fn what_queued_shows_as_delay_variation() {
    let mut script = established();
    for message in 0..100 {
        script
            .at(200 + message * 30)
            .data(message * 10 + 1, message * 10 + 11);
    }
    script.at(3500).ack(1001).at(3600).close(1001);
    let (here, mut there) = carry(&script, ONE_WAY, AHEAD, &[]);
    let late = there.iter_mut().filter(|packet| packet.payload_len > 0);
    for packet in late.skip(50).take(10) {
        packet.at_ns += 20 * MS;
    }
    let results = measure_both(&here, &there, Options::default());
    let delay = &results.all.main.delay;
    assert_eq!(ms(&delay.variation), [(0, 90), (20, 10)]);
    assert_eq!(delay.variation_by_regression.len(), 100);
    assert_eq!(ms(&delay.one_way), [(75, 90), (95, 10)]);
}

#[test]
fn bytes_that_wait_are_told_with_what_they_wait_behind() {
    let script = one_loss();
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4]);
    let results = measure_both(&here, &there, Options::default());
    let blocking = &results.connections[0].main.head_of_line;
    assert_eq!(ms(&blocking.wait), [(210, 1), (240, 1), (270, 1)]);
    assert_eq!(
        (blocking.blocked_bytes, blocking.readable_bytes),
        (300, 400)
    );
    assert_eq!(blocking.blocked_share, Some(0.75));
    assert!((blocking.byte_seconds - 72.0).abs() < 1e-9);
    let [blocker] = blocking.behind[..] else {
        panic!("{:?}", blocking.behind);
    };
    assert_eq!(
        (blocker.position, blocker.ranges, blocker.bytes),
        (1, 3, 300)
    );
    assert_eq!(blocker.longest_ms, 270.0);
    assert!(results.all.main.head_of_line.behind.is_empty());
}

#[test]
fn bytes_that_come_together_with_the_missing_one_do_not_wait() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script
        .at(500)
        .data(1, 201)
        .at(650)
        .ack(201)
        .at(700)
        .close(201);
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4, 5]);
    let results = measure_both(&here, &there, Options::default());
    let main = &results.connections[0].main;
    assert_eq!(ms(&main.delay.application), [(345, 1), (375, 1)]);
    assert!(main.head_of_line.wait.is_empty());
    assert!(main.head_of_line.behind.is_empty());
}

#[test]
fn slices_hold_throughput_goodput_loss_and_packets_in_flight() {
    let mut script = established();
    script.at(990).data(1, 101).at(1000).data(101, 201);
    script.at(1400).data(101, 201).at(1560).ack(201);
    script.at(1600).close(201);
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[5]);
    let results = measure_both(&here, &there, Options::default());
    let slices = &results.all.main.slices;
    let slices: Vec<_> = slices
        .iter()
        .map(|(index, slice)| (index, *slice))
        .collect();
    let [(0, first), (1, second)] = slices[..] else {
        panic!("{slices:?}");
    };
    // In the first: SYN, ACK and data, of which the data arrives in the second.
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
    assert_eq!((second.most_in_flight, second.in_flight_sum), (2, 3));
}

#[test]
fn groups_are_measured_together_and_optima_go_by_group() {
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
    let options = Options {
        groups,
        optimum_of_group: vec![("thin".into(), 1000.0), ("greedy".into(), 9000.0)],
        ..Options::default()
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
    // Five packets of 66 bytes with what they carry, in one second.
    assert_eq!(
        (wire(0), wire(2)),
        (8.0 * (5.0 * 66.0 + 100.0), 8.0 * (5.0 * 66.0 + 900.0))
    );
    let relative = [wire(0) / 1000.0, wire(1) / 1000.0, wire(2) / 9000.0];
    assert_eq!(
        results.all.fairness.jain_index_relative_to_optimum,
        super::jain_index(relative)
    );
}

#[test]
fn connections_are_counted_by_what_became_of_them() {
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
    let results = measure(&script, Options::default());
    let all = results.all.handshakes;
    assert_eq!((all.connections, all.tried, all.completed), (5, 4, 2));
    assert_eq!((all.refused, all.unanswered, all.reset), (1, 1, 1));
    assert_eq!((all.tried_again, all.without_data, all.syns), (1, 3, 5));
    assert_eq!(
        (all.dropped, all.never_established, all.problematic),
        (4, 2, 5)
    );
    assert_eq!(results.connections[0].outcome, Outcome::Completed);
    assert_eq!(results.connections[0].duration_s, 0.9);
}

#[test]
fn the_main_direction_is_that_of_more_new_bytes() {
    let mut script = Script::new();
    script.handshake();
    script.at(10).data(1, 11);
    script.at(20).packet(Backward, 1, 500);
    let results = measure(&script, Options::default());
    let connection = &results.connections[0];
    assert_eq!(connection.sender, script.server);
    assert!(!connection.opened_by_sender);
    assert_eq!(connection.main.sent.counts.new_bytes, 500);
    assert_eq!(connection.back.sent.counts.new_bytes, 10);
}

#[test]
fn an_empty_trace_has_empty_results() {
    let results = measure(&Script::new(), Options::default());
    assert_eq!((results.duration_s, results.connections.len()), (0.0, 0));
    assert!(serde_json::to_string(&results).is_ok());
}

#[test]
fn serialised_results_give_times_in_milliseconds_under_names_that_say_so() {
    let (here, there) = carry(&one_loss(), ONE_WAY, AHEAD, &[4]);
    let results = measure_both(&here, &there, Options::default());
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
        assert_eq!(main["slices"][0]["begin_s"], 0.0);
        assert_eq!(main["slices"][0]["lost_data_packets"], 1);
    }
}

#[test]
fn tables_have_one_header_and_a_row_for_each_of_whom_they_tell() {
    let (here, there) = carry(&one_loss(), ONE_WAY, AHEAD, &[4]);
    let options = Options {
        groups: vec!["thin=:80".parse().unwrap()],
        ..Options::default()
    };
    let results = measure_both(&here, &there, options);
    let folder = tempfile::tempdir().unwrap();
    let written = super::write_tables(&results, &folder.path().join("new")).unwrap();
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
fn tables_without_a_row_are_not_written() {
    let results = measure(&one_message(), Options::default());
    let folder = tempfile::tempdir().unwrap();
    let written = super::write_tables(&results, folder.path()).unwrap();
    let there = |name: &str| folder.path().join(name).exists();
    assert!(there("rtt_ms.csv") && written.contains(&folder.path().join("rtt_ms.csv")));
    assert!(!there("loss.csv") && !there("one_way_delay_ms.csv"));
    assert_eq!(
        written.len(),
        std::fs::read_dir(folder.path()).unwrap().count()
    );
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let results = measure(&Script::new(), Options::default());
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = super::write_tables(&results, &file.path().join("tables")).unwrap_err();
    assert!(error.to_string().contains("tables"), "{error}");
}
