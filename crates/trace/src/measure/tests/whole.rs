use super::*;

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
        jain_index(relative)
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
fn a_connection_was_dropped_if_it_lasted_less_than_half_of_the_test() {
    let mut all = Script::new();
    // Of a test from 1 s to 11 s, after which a backlog drains for a minute.
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
        let options = Options {
            test_ns,
            ..Options::default()
        };
        let handshakes = measure(&all, options).all.handshakes;
        assert_eq!(handshakes.problematic, handshakes.dropped);
        handshakes.dropped
    };
    assert_eq!(dropped(Some(1000 * MS..11_000 * MS)), 3);
    // Of the trace, all but those that were there while it drained.
    assert_eq!(dropped(None), 4);
    assert_eq!(dropped(Some(0..6000 * MS)), 1);
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
