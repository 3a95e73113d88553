use crate::Direction::{Backward, Forward};
use crate::script::{MS, Record, Script, endpoint};
use crate::{Analysis, Class, CopyKind, Outcome, Start};

fn established() -> Script {
    let mut script = Script::new();
    script.handshake();
    script
}

fn classes(script: &Script) -> Vec<Class> {
    let record = script.analyse();
    let data = record.sent.iter().filter(|sent| sent.direction == Forward);
    data.map(|sent| sent.class)
        .filter(|class| *class != Class::Control)
        .collect()
}

#[test]
fn each_segment_that_is_sent_once_is_one_range() {
    let mut script = established();
    script.at(10).data(1, 101).at(20).data(101, 201);
    script.at(60).ack(101).at(70).ack(201);
    let record = script.analyse();
    assert_eq!(
        record.summary(),
        [(1, 101, 1, Some(60)), (101, 201, 1, Some(70))]
    );
    assert_eq!(record.ranges[0].1.ack_latency_ns(), Some(50 * MS));
    let counts = record.only().forward;
    assert_eq!((counts.new_packets, counts.new_bytes), (2, 200));
    assert_eq!(counts.payload_bytes, 200);
}

#[test]
fn a_bundle_has_an_old_part_and_a_new_part() {
    let mut script = established();
    script.at(10).data(1, 101).at(40).data(1, 201);
    script.at(90).ack(201);
    let record = script.analyse();
    assert_eq!(
        record.summary(),
        [(1, 101, 2, Some(90)), (101, 201, 1, Some(90))]
    );
    let copies = &record.ranges[0].1.copies;
    assert_eq!(copies[0].kind, CopyKind::New);
    assert_eq!(copies[1].kind, CopyKind::Bundled);
    assert_eq!(copies[1].at_ns, 40 * MS);
    let bundle = record.sent.iter().find(|sent| sent.class == Class::Bundled);
    let bundle = bundle.unwrap();
    assert_eq!((bundle.old_bytes, bundle.new_bytes), (100, 100));
    let counts = record.only().forward;
    assert_eq!((counts.bundled_packets, counts.bundled_bytes), (1, 100));
    assert_eq!(counts.new_bytes, 200);
    assert_eq!(counts.bundled_share(), 1.0 / 3.0);
    assert_eq!(counts.retransmitted_packets, 0);
}

#[test]
fn the_nth_retransmission_is_counted_from_the_first_copy() {
    let mut script = established();
    for at in [10, 210, 610] {
        script.at(at).data(1, 101);
    }
    script.at(700).ack(101);
    assert_eq!(
        classes(&script),
        [
            Class::New,
            Class::Retransmission { nth: 1 },
            Class::Retransmission { nth: 2 }
        ]
    );
    assert_eq!(script.analyse().ranges[0].1.retransmissions(), 2);
}

#[test]
fn a_retransmission_of_a_part_cuts_the_range() {
    let mut script = established();
    script.at(10).data(1, 301).at(20).data(301, 401);
    script.at(210).data(101, 351).at(300).ack(401);
    assert_eq!(
        script.analyse().summary(),
        [
            (1, 101, 1, Some(300)),
            (101, 301, 2, Some(300)),
            (301, 351, 2, Some(300)),
            (351, 401, 1, Some(300))
        ]
    );
}

#[test]
fn an_ack_of_a_part_cuts_the_range() {
    let mut script = established();
    script.at(10).data(1, 301).at(50).ack(101).at(60).ack(301);
    assert_eq!(
        script.analyse().summary(),
        [(1, 101, 1, Some(50)), (101, 301, 1, Some(60))]
    );
}

#[test]
fn sequence_numbers_may_wrap() {
    let mut script = Script::new();
    script.initial = [u32::MAX - 150, u32::MAX];
    script.handshake();
    script.at(10).data(1, 101).at(20).data(101, 201);
    script.at(220).data(101, 201).at(300).ack(201);
    let record = script.analyse();
    assert_eq!(
        record.summary(),
        [(1, 101, 1, Some(300)), (101, 201, 2, Some(300))]
    );
    assert_eq!(record.only().forward.stray_packets, 0);
}

#[test]
fn sack_dates_a_range_before_its_ack() {
    let mut script = established();
    script.at(10).data(1, 101).data(101, 201).data(201, 301);
    script.at(60).sack(1, &[(101, 201)]);
    script.at(61).sack(1, &[(101, 301)]);
    script.at(210).data(1, 101).at(260).ack(301);
    let record = script.analyse();
    let sacked: Vec<_> = record.ranges.iter().map(|(_, r)| r.sacked_ns).collect();
    assert_eq!(sacked, [None, Some(60 * MS), Some(61 * MS)]);
    let acks = record
        .acked
        .iter()
        .filter(|acked| acked.direction == Forward);
    let new: Vec<_> = acks.map(|acked| acked.sacked_bytes).collect();
    assert_eq!(new[new.len() - 3..], [100, 100, 0]);
    assert_eq!(record.only().backward.duplicate_acks, 2);
}

/// RFC 6675, section 2: the octets that it reports are sequence numbers, and a FIN has one.
#[test]
fn what_reports_nothing_but_a_fin_for_the_first_time_is_a_duplicate_ack() {
    let mut script = established();
    script.at(10).data(1, 101).data(101, 201);
    script.last().flags.fin = true;
    script.at(60).sack(1, &[(201, 202)]);
    script.at(61).sack(1, &[(201, 202)]);
    script.at(210).data(1, 101).at(260).ack(202);
    let record = script.analyse();
    assert_eq!(record.only().backward.duplicate_acks, 1);
    assert!(record.acked.iter().all(|acked| acked.sacked_bytes == 0));
}

#[test]
fn a_block_below_the_ack_says_what_came_twice() {
    let mut script = established();
    script.at(10).data(1, 101).at(40).data(1, 201);
    script.at(60).ack(101).at(90).sack(201, &[(1, 101)]);
    let record = script.analyse();
    assert_eq!(record.acked.last().unwrap().dsack, Some((1, 101)));
    assert_eq!(record.only().backward.dsacks, 1);
    assert_eq!(record.only().backward.duplicate_acks, 0);
}

#[test]
fn only_what_was_sent_once_gives_a_round_trip_time() {
    let mut script = established();
    script.at(10).data(1, 101).at(50).ack(101);
    script.at(60).data(101, 201).at(260).data(101, 201);
    script.at(300).ack(201);
    let record = script.analyse();
    let samples: Vec<_> = record
        .acked
        .iter()
        .filter_map(|acked| acked.rtt_ns)
        .collect();
    assert_eq!(samples, [40 * MS]);
}

#[test]
fn an_ack_to_where_only_the_first_packet_ended_tells_the_round_trip_time_despite_bundles() {
    let mut script = established();
    script.at(10).data(1, 101).at(40).data(1, 201);
    script.at(60).ack(101).at(90).ack(201);
    script.at(100).data(201, 301).at(130).data(201, 401);
    script.at(150).data(201, 301).at(160).ack(301);
    let record = script.analyse();
    let samples: Vec<_> = record
        .acked
        .iter()
        .filter_map(|acked| acked.rtt_ns)
        .collect();
    assert_eq!(samples, [50 * MS, 50 * MS]);
}

#[test]
fn packets_in_flight_are_those_with_new_bytes() {
    let mut script = established();
    script.at(10).data(1, 101).data(101, 201).data(1, 101);
    script.data(201, 301).at(50).ack(201).at(60).data(301, 401);
    let record = script.analyse();
    let data = record
        .sent
        .iter()
        .filter(|sent| sent.class != Class::Control);
    let in_flight: Vec<_> = data
        .map(|sent| (sent.in_flight, sent.bytes_in_flight))
        .collect();
    assert_eq!(in_flight, [(0, 0), (1, 100), (2, 200), (2, 200), (1, 100)]);
    assert_eq!(record.only().forward.most_in_flight, 3);
}

#[test]
fn a_fin_with_payload_counts_once() {
    let mut script = established();
    script.at(10).data(1, 101);
    script.last().flags.fin = true;
    script.at(60).ack(102);
    script.packet(Backward, 1, 0).flags.fin = true;
    let record = script.analyse();
    let counts = record.only().forward;
    assert_eq!((counts.new_packets, counts.new_bytes), (1, 100));
    assert_eq!((counts.fins, counts.missing_bytes), (1, 0));
    assert_eq!(record.summary(), [(1, 101, 1, Some(60))]);
}

#[test]
fn keep_alives_are_no_retransmissions() {
    let mut script = established();
    script.at(10).data(1, 101).at(50).ack(101);
    script.at(5000).data(100, 100).at(5050).ack(101);
    script.at(9000).data(100, 101).at(9050).ack(101);
    let record = script.analyse();
    let counts = record.only().forward;
    assert_eq!(counts.keep_alives, 2);
    assert_eq!((counts.data_packets, counts.retransmitted_packets), (1, 0));
    assert_eq!(record.only().backward.duplicate_acks, 0);
}

#[test]
fn probes_of_a_closed_window_are_no_retransmissions() {
    let mut script = established();
    script.at(10).data(1, 101).at(50).ack(101);
    script.last().window = 0;
    script.at(250).data(100, 100).at(300).ack(101);
    script.last().window = 0;
    script.at(450).data(101, 102).at(500).ack(101);
    script.at(510).data(101, 201).at(560).ack(201);
    let counts = script.analyse().only().forward;
    assert_eq!((counts.window_probes, counts.keep_alives), (2, 0));
    assert_eq!((counts.new_packets, counts.new_bytes), (2, 200));
    assert_eq!(counts.bundled_packets + counts.retransmitted_packets, 0);
}

#[test]
fn a_probe_s_byte_that_the_peer_takes_is_payload() {
    for data_first in [false, true] {
        let mut script = established();
        script.at(10).data(1, 101).at(50).ack(101);
        script.last().window = 0;
        script.at(250).data(101, 102);
        if data_first {
            script.at(290).data(102, 201).at(300).ack(102);
        } else {
            script.at(300).ack(102).at(310).data(102, 201);
        }
        script.at(360).ack(201);
        let counts = script.analyse().only().forward;
        assert_eq!((counts.window_probes, counts.missing_bytes), (1, 0));
        assert_eq!((counts.data_packets, counts.new_packets), (2, 2));
        assert_eq!((counts.payload_bytes, counts.new_bytes), (200, 200));
    }
}

#[test]
fn a_packet_that_the_trace_shows_twice_counts_once() {
    let mut script = established();
    script.at(10).data(1, 101).data(101, 201);
    let mut again = script.packets[3..].to_vec();
    for packet in &mut again {
        packet.at_ns += 20_000;
        packet.interface = 1;
    }
    script.packets.extend(again);
    script.at(60).ack(201);
    let record = script.analyse();
    let counts = record.only().forward;
    assert_eq!((counts.repeated_packets, counts.data_packets), (2, 2));
    assert_eq!(
        record.summary(),
        [(1, 101, 1, Some(60)), (101, 201, 1, Some(60))]
    );
}

#[test]
fn what_comes_twice_on_one_interface_was_sent_twice() {
    let mut script = established();
    script.at(10).data(1, 101).data(101, 201);
    let mut again = *script.last();
    again.at_ns += 20_000;
    script.packets.push(again);
    script.at(60).ack(201);
    let counts = script.analyse().only().forward;
    assert_eq!((counts.repeated_packets, counts.data_packets), (0, 3));
}

#[test]
fn a_quick_copy_with_another_identification_was_sent_twice() {
    let mut script = established();
    script.at(10).data(1, 101).data(1, 101).at(60).ack(101);
    let counts = script.analyse().only().forward;
    assert_eq!(
        (counts.repeated_packets, counts.retransmitted_packets),
        (0, 1)
    );
}

#[test]
fn equal_acks_without_identification_are_duplicate_acks() {
    let mut script = established();
    script.at(10).data(1, 101).data(101, 201).at(60);
    for _ in 0..3 {
        script.ack(1);
        script.last().ip_id = None;
    }
    let counts = script.analyse().only().backward;
    assert_eq!((counts.repeated_packets, counts.duplicate_acks), (0, 3));
}

#[test]
fn a_segment_that_the_file_has_later_is_still_new() {
    let mut script = established();
    script.at(10).data(1, 101).data(201, 301).data(101, 201);
    script.at(60).ack(301);
    assert_eq!(classes(&script), [Class::New, Class::New, Class::New]);
    assert_eq!(script.analyse().only().forward.missing_bytes, 0);
}

#[test]
fn a_segment_that_the_file_has_after_its_ack_is_still_new() {
    let mut script = established();
    script.at(10).data(1, 101).at(60).ack(201).data(101, 201);
    script.at(70).data(201, 301).at(120).ack(301);
    assert_eq!(classes(&script), [Class::New, Class::New, Class::New]);
    let counts = script.analyse().only().forward;
    assert_eq!((counts.missing_bytes, counts.stale_bytes), (0, 0));
}

#[test]
fn bytes_that_the_trace_misses_are_counted() {
    let mut script = established();
    script.at(10).data(1, 101).data(201, 301).at(60).ack(301);
    let counts = script.analyse().only().forward;
    assert_eq!((counts.missing_bytes, counts.new_bytes), (100, 200));
}

#[test]
fn a_retransmission_of_what_is_acknowledged_is_stale() {
    let mut script = established();
    script
        .at(10)
        .data(1, 101)
        .at(60)
        .ack(101)
        .at(70)
        .data(1, 101);
    let counts = script.analyse().only().forward;
    assert_eq!((counts.retransmitted_packets, counts.stale_bytes), (1, 100));
    assert_eq!(classes(&script)[1], Class::Retransmission { nth: 0 });
}

#[test]
fn a_segment_larger_than_the_peer_takes_is_offloaded() {
    let mut script = established();
    script
        .at(10)
        .data(1, 1461)
        .data(1461, 5841)
        .at(60)
        .ack(5841);
    let counts = script.analyse().only().forward;
    assert_eq!((counts.offloaded_packets, counts.new_packets), (1, 2));
}

#[test]
fn the_handshake_is_counted_with_its_repeated_syns() {
    let mut script = Script::new();
    script.syn();
    script.at(1000).syn();
    script.at(1050).syn_ack();
    script.packet(Forward, 1, 0);
    script.at(1100).close(1);
    let record = script.analyse();
    let connection = record.only();
    assert_eq!(connection.outcome, Outcome::Completed);
    assert_eq!(
        (connection.handshake.syns, connection.handshake.syn_acks),
        (2, 1)
    );
    assert_eq!(connection.handshake.first_syn_ns, Some(0));
    assert_eq!(connection.handshake.last_syn_ns, Some(1000 * MS));
    assert!(!connection.has_data);
}

#[test]
fn an_attempt_is_refused_or_unanswered() {
    let mut script = Script::new();
    script.syn();
    assert_eq!(script.analyse().only().outcome, Outcome::Unanswered);
    script.packet(Backward, 0, 0).flags.rst = true;
    assert_eq!(script.analyse().only().outcome, Outcome::Refused);
}

#[test]
fn a_connection_that_ends_with_rst_was_reset() {
    let mut script = established();
    script.at(10).data(1, 101);
    script.packet(Backward, 1, 0).flags.rst = true;
    let record = script.analyse();
    assert_eq!(record.only().outcome, Outcome::Reset);
    assert_eq!(record.summary(), [(1, 101, 1, None)]);
}

#[test]
fn another_initial_sequence_number_is_another_connection() {
    let mut script = established();
    script.at(10).data(1, 101).at(60).ack(101).at(70).close(101);
    script.initial = [3_000_000_000, 9];
    let mut second = Script::new();
    second.initial = [3_000_000_000, 9];
    second
        .at(200)
        .handshake()
        .at(210)
        .data(1, 51)
        .at(260)
        .ack(51);
    script.packets.extend(second.packets);
    let record = script.analyse();
    let bytes: Vec<_> = record
        .connections
        .iter()
        .map(|connection| (connection.outcome, connection.forward.new_bytes))
        .collect();
    assert_eq!(bytes, [(Outcome::Completed, 100), (Outcome::Completed, 50)]);
}

#[test]
fn both_ends_may_open_at_once() {
    let mut script = Script::new();
    script.syn();
    script.syn_ack().ack = None;
    script.at(20);
    script.packet(Forward, 0, 0).flags.syn = true;
    script.packet(Backward, 0, 0).flags.syn = true;
    script.at(30).data(1, 101).at(60).ack(101);
    let record = script.analyse();
    assert!(record.only().handshake.simultaneous);
    assert_eq!(record.only().outcome, Outcome::Completed);
    assert_eq!(record.summary(), [(1, 101, 1, Some(60))]);
}

#[test]
fn a_trace_may_begin_in_the_middle() {
    let mut script = Script::new();
    script
        .at(10)
        .data(50_001, 50_101)
        .at(20)
        .data(50_101, 50_201);
    script.at(60).ack(50_201);
    let record = script.analyse();
    assert_eq!(record.only().start, Start::Midway);
    assert_eq!(record.only().outcome, Outcome::NotSeen);
    assert_eq!(
        record.summary(),
        [(1, 101, 1, Some(60)), (101, 201, 1, Some(60))]
    );
}

#[test]
fn the_originator_is_known_without_its_syn() {
    let mut script = Script::new();
    script.syn_ack();
    script.packet(Forward, 1, 0);
    script.packet(Backward, 1, 700);
    let record = script.analyse();
    assert_eq!(record.only().start, Start::SynAck);
    assert_eq!(record.only().originator, script.client);
    assert_eq!(record.only().main_sender, script.server);
    assert_eq!(record.only().outcome, Outcome::Completed);
}

#[test]
fn a_closed_connection_is_finished_after_a_while() {
    let mut script = established();
    script.at(10).close(1);
    script.client = endpoint("192.0.2.9:9");
    script.at(59_000).syn();
    script.at(61_000).syn();
    let mut analysis = Analysis::new(Record::default());
    // An analysis looks at the beginning of a trace before it tells of any of it.
    let mut others = Script::new();
    others.client = endpoint("192.0.2.7:7");
    for position in 1..=1000 {
        others.data(position, position + 1);
    }
    for packet in &others.packets {
        analysis.packet(packet);
    }
    let (last, before) = script.packets.split_last().unwrap();
    for packet in before {
        analysis.packet(packet);
    }
    assert!(analysis.observer().connections.is_empty());
    analysis.packet(last);
    assert_eq!(analysis.observer().connections.len(), 1);
}
