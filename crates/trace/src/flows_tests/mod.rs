mod ranges;

use crate::Direction::{Backward, Forward};
use crate::script::{MS, Record, Script, analyse_both, carry, endpoint};
use crate::{Analysis, Class, ConnectionOutcome, Period, Start, analyse};

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
fn handshake_counts_repeated_syns() {
    let mut script = Script::new();
    script.syn();
    script.at(1000).syn();
    script.at(1050).syn_ack();
    script.packet(Forward, 1, 0);
    script.at(1100).close(1);
    let record = script.analyse();
    let connection = record.only();
    assert_eq!(connection.outcome, ConnectionOutcome::Completed);
    assert_eq!(
        (connection.handshake.syns, connection.handshake.syn_acks),
        (2, 1)
    );
    assert_eq!(connection.handshake.first_syn_ns, Some(0));
    assert_eq!(connection.handshake.last_syn_ns, Some(1000 * MS));
    assert!(!connection.has_data);
}

#[test]
fn handshake_outcome_is_refused_or_unanswered() {
    let mut script = Script::new();
    script.syn();
    assert_eq!(
        script.analyse().only().outcome,
        ConnectionOutcome::Unanswered
    );
    script.packet(Backward, 0, 0).flags.rst = true;
    assert_eq!(script.analyse().only().outcome, ConnectionOutcome::Refused);
}

#[test]
fn rst_after_handshake_gives_outcome_reset() {
    let mut script = established();
    script.at(10).data(1, 101);
    script.packet(Backward, 1, 0).flags.rst = true;
    let record = script.analyse();
    assert_eq!(record.only().outcome, ConnectionOutcome::Reset);
    assert_eq!(record.summary(), [(1, 101, 1, None)]);
}

#[test]
fn new_initial_sequence_number_opens_new_connection() {
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
    assert_eq!(
        bytes,
        [
            (ConnectionOutcome::Completed, 100),
            (ConnectionOutcome::Completed, 50)
        ]
    );
}

#[test]
fn simultaneous_open_completes() {
    let mut script = Script::new();
    script.syn();
    script.syn_ack().ack = None;
    script.at(20);
    script.packet(Forward, 0, 0).flags.syn = true;
    script.packet(Backward, 0, 0).flags.syn = true;
    script.at(30).data(1, 101).at(60).ack(101);
    let record = script.analyse();
    assert!(record.only().handshake.simultaneous);
    assert_eq!(record.only().outcome, ConnectionOutcome::Completed);
    assert_eq!(record.summary(), [(1, 101, 1, Some(60))]);
}

/// RFC 9293, section 3.10.7.3: the ACK of the SYN's sender decides.
#[test]
fn ack_chooses_among_syn_acks() {
    const OTHER: u32 = 3_000_000_000;
    for (taken, late) in [(0, false), (1, false), (0, true)] {
        let mut script = Script::new();
        let first = script.initial[1];
        script.syn();
        script.at(50).syn_ack().mss = Some(1000);
        if late {
            script.at(60).packet(Forward, 1, 0);
        }
        script.initial[1] = OTHER;
        script.at(51).syn_ack().mss = Some(1200);
        script.initial[1] = [first, OTHER][taken];
        script.at(60).packet(Forward, 1, 0);
        script.at(70).data(1, 101).at(110).ack(101);
        script.at(120).packet(Backward, 1, 200);
        script.at(130).packet(Backward, 201, 200);
        // Once more, after data was sent.
        script.initial[1] = OTHER.wrapping_add(9);
        let ack = script.initial[0] + 1;
        script.at(140).syn_ack().ack = Some(ack);
        script.initial[1] = [first, OTHER][taken];
        script.at(150).packet(Backward, 401, 200);
        let record = script.analyse();
        let connection = record.only();
        assert_eq!(connection.outcome, ConnectionOutcome::Completed);
        assert_eq!(connection.handshake.completed_ns, Some(60 * MS));
        let sent = connection.backward;
        assert_eq!((sent.new_bytes, sent.retransmitted_packets), (600, 0));
        assert_eq!((sent.syns, sent.stray_packets), (3, 0));
        let (here, there) = carry(&script, 20 * MS, 0, &[]);
        let record = analyse_both(&here, &there).0;
        let arrived = record.only().delivery_stats[1];
        assert_eq!((arrived.delivered_bytes, arrived.lost_packets), (600, 0));
    }
}

/// A half-open connection answers a SYN with an ACK, which RST answers.
#[test]
fn unacceptable_ack_of_syn_is_stray() {
    for far in [0x3000_0000, 0x9000_0000] {
        let mut script = Script::new();
        script.syn();
        script.at(50).packet(Backward, 5000, 0).ack = Some(far);
        script.at(60).packet(Forward, far.into(), 0).flags.rst = true;
        script.at(3000).syn();
        script.at(3050).syn_ack();
        script.at(3060).packet(Forward, 1, 0);
        script.messages(5, (3100, 50), 40, 1);
        let (here, there) = carry(&script, 20 * MS, 0, &[]);
        for record in [script.analyse(), analyse_both(&here, &there).0] {
            let counts = record.only().forward;
            assert_eq!((counts.new_bytes, counts.missing_bytes), (500, 0));
            assert_eq!(record.only().outcome, ConnectionOutcome::Completed);
            let acked = record.summary().into_iter().filter_map(|(.., acked)| acked);
            assert_eq!(acked.count(), 5);
        }
    }
}

#[test]
fn ack_captured_before_its_syn_ack_completes_handshake() {
    let mut script = Script::new();
    script.syn();
    script.at(50).packet(Forward, 1, 0);
    script.at(51).syn_ack();
    script.at(200).packet(Backward, 1, 10);
    script.at(201).packet(Forward, 1, 0);
    let record = script.analyse();
    assert_eq!(record.only().handshake.completed_ns, Some(51 * MS));
    // Not the ACK of another answer.
    script.packets[1].ack = Some(5);
    let record = script.analyse();
    assert_eq!(record.only().handshake.completed_ns, Some(201 * MS));
}

#[test]
fn trace_may_start_midway() {
    let mut script = Script::new();
    script
        .at(10)
        .data(50_001, 50_101)
        .at(20)
        .data(50_101, 50_201);
    script.at(60).ack(50_201);
    let record = script.analyse();
    assert_eq!(record.only().start, Start::Midway);
    assert_eq!(record.only().outcome, ConnectionOutcome::NotSeen);
    assert_eq!(
        record.summary(),
        [(1, 101, 1, Some(60)), (101, 201, 1, Some(60))]
    );
}

#[test]
fn syn_ack_alone_identifies_originator() {
    let mut script = Script::new();
    script.syn_ack();
    script.packet(Forward, 1, 0);
    script.packet(Backward, 1, 700);
    let record = script.analyse();
    assert_eq!(record.only().start, Start::SynAck);
    assert_eq!(record.only().originator, script.client);
    assert_eq!(record.only().main_sender, script.server);
    assert_eq!(record.only().outcome, ConnectionOutcome::Completed);
}

#[test]
fn closed_connection_expires_after_linger_time() {
    let mut script = established();
    script.at(10).close(1);
    script.client = endpoint("192.0.2.9:9");
    script.at(59_000).syn();
    script.at(61_000).syn();
    let mut analysis = Analysis::new(Record::default());
    // The analysis stores the first packets before it reports any.
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

/// A connection whose messages of 100 bytes come each 50 ms and are acknowledged 40 ms later.
fn conversation(messages: i64) -> Script {
    let mut script = established();
    for message in 0..messages {
        let (at, start) = (200 + message * 50, message * 100 + 1);
        script.at(at).data(start, start + 100);
        script.at(at + 40).ack(start + 100);
    }
    script
}

#[test]
fn analysis_with_reader_thread_has_equal_events() {
    let script = conversation(3000);
    let packets = script.packets.iter().copied();
    let (read, pushed) = (
        analyse(packets, Period::default(), Record::default()),
        script.analyse(),
    );
    assert_eq!(read.sent, pushed.sent);
    assert_eq!(read.ranges, pushed.ranges);
    assert_eq!(read.only().forward, pushed.only().forward);
}

/// A capture may miss gigabytes. The connection continues, because the other direction does.
#[test]
fn gap_of_any_length_splits_no_connection() {
    for gap in [
        1_i64 << 29,
        1 << 30,
        (1 << 31) + 5,
        3 << 30,
        (1 << 32) - (1 << 25),
    ] {
        for ack_ms in [40, 300] {
            let mut script = conversation(20);
            script.messages(20, (5000, 50), ack_ms, 2001 + gap);
            let record = script.analyse();
            let counts = record.only().forward;
            assert_eq!(counts.missing_bytes, gap.unsigned_abs(), "{gap:x}");
            assert_eq!((counts.new_bytes, counts.retransmitted_packets), (4000, 0));
            assert_eq!((counts.stray_packets, counts.stray_acks), (0, 0));
            let acked = record.summary().into_iter().filter_map(|(.., acked)| acked);
            assert_eq!(acked.count(), 40);
            let (here, there) = carry(&script, 20 * MS, 0, &[]);
            let stats = analyse_both(&here, &there).0.only().delivery_stats[0];
            assert_eq!((stats.delivered_bytes, stats.lost_packets), (4000, 0));
        }
    }
}

/// A wrong or guessed sequence number.
const FAR: i64 = 0x9000_0000;

#[test]
fn unmatched_packet_is_stray_and_splits_no_connection() {
    let mut script = conversation(40);
    for (at, position, times) in [(505, FAR, 1), (907, 0x5000_0000, 1), (1313, FAR, 2)] {
        // Shown twice, it matches only itself.
        for _ in 0..times {
            script.at(at).data(position, position + 10);
            script.last().ip_id = Some(1);
        }
    }
    script.packets.sort_by_key(|packet| packet.at_ns);
    let record = script.analyse();
    let counts = &record.only().forward;
    assert_eq!((counts.stray_packets, counts.data_packets), (4, 40));
    assert_eq!(counts.packets, 2 + 40 + 4);
    assert_eq!(record.summary().len(), 40);
    assert!(record.summary().iter().all(|(.., acked)| acked.is_some()));
}

#[test]
fn connection_without_handshake_includes_its_first_packet() {
    // A second packet matches the first, or an ACK does before a second packet.
    for ack_ms in [300, 40] {
        let mut script = conversation(10);
        script.initial[1] ^= 0x5555_5555;
        script.messages(10, (5000, 50), ack_ms, FAR);
        let record = script.analyse();
        let connections = record.connections.iter();
        let connections: Vec<_> = connections
            .map(|it| (it.start, it.forward.new_bytes, it.forward.stray_packets))
            .collect();
        assert_eq!(
            connections,
            [(Start::Syn, 1000, 0), (Start::Midway, 1000, 0)],
            "{ack_ms}"
        );
        let acked = record.summary().into_iter().filter_map(|(.., acked)| acked);
        assert_eq!(acked.count(), 20);
        assert_eq!(record.connections[1].forward.missing_bytes, 0);
        assert_eq!(record.connections[1].originator, script.client);
    }
}

#[test]
fn sack_time_precedes_ack_time() {
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

/// RFC 6675, section 2: SACK reports bytes for the first time, whether or not they were captured.
#[test]
fn sack_of_uncaptured_bytes_is_duplicate_ack() {
    // The trace starts with a hole of 5,000 bytes before its first packet.
    let mut script = Script::new();
    script.at(0).data(1, 1001).data(1001, 2001);
    script.at(50).sack(-4999, &[(1, 1001)]);
    script.at(51).sack(-4999, &[(1, 2001)]);
    script.at(60).data(2001, 3001);
    script
        .at(110)
        .sack(-4999, &[(1, 3001)])
        .sack(-4999, &[(1, 3001)]);
    script.at(120).data(-4999, -3999).data(-2999, -1999);
    script.at(170).sack(-3999, &[(1, 3001)]);
    script.at(171).sack(-3999, &[(-2999, -1999), (1, 3001)]);
    script.at(172).sack(-3999, &[(-2999, -1999), (1, 3001)]);
    script.at(200).ack(3001);
    let record = script.analyse();
    assert_eq!(record.only().backward.duplicate_acks, 3);
    assert_eq!(record.only().forward.missing_bytes, 0);
    assert_eq!(
        record.acked.iter().map(|it| it.sacked_bytes).sum::<u64>(),
        4000
    );
    // The capture missed packets between others, and above them.
    let mut script = established();
    script.at(10).data(1, 101).data(301, 401);
    script
        .at(60)
        .sack(101, &[(201, 401)])
        .sack(101, &[(201, 401)]);
    script
        .at(61)
        .sack(101, &[(201, 501)])
        .sack(101, &[(201, 451)]);
    script.at(80).data(101, 201).at(130).ack(501);
    let record = script.analyse();
    assert_eq!(record.only().backward.duplicate_acks, 1);
    assert_eq!(
        record.acked.iter().map(|it| it.sacked_bytes).sum::<u64>(),
        300
    );
    assert_eq!(record.only().forward.missing_bytes, 200);
}

/// RFC 6675, section 2: the reported octets are sequence numbers, and a FIN has one.
#[test]
fn sack_of_only_a_fin_is_duplicate_ack() {
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
fn sack_block_below_ack_is_dsack() {
    let mut script = established();
    script.at(10).data(1, 101).at(40).data(1, 201);
    script.at(60).ack(101).at(90).sack(201, &[(1, 101)]);
    let record = script.analyse();
    assert_eq!(record.acked.last().unwrap().dsack, Some((1, 101)));
    assert_eq!(record.only().backward.dsacks, 1);
    assert_eq!(record.only().backward.duplicate_acks, 0);
}

/// RFC 2883, section 4: the reported sequence number may be that of a FIN.
#[test]
fn dsack_of_only_a_fin_is_counted() {
    let mut script = established();
    script.at(10).data(1, 101).data(1, 101);
    script.last().flags.fin = true;
    script
        .at(60)
        .ack(102)
        .at(210)
        .packet(Forward, 101, 0)
        .flags
        .fin = true;
    script.at(260).sack(102, &[(101, 102)]);
    let record = script.analyse();
    assert_eq!(record.acked.last().unwrap().dsack, Some((101, 101)));
    assert_eq!(record.only().backward.dsacks, 1);
    let counts = record.only().forward;
    // The DSACK does not report the retransmitted bytes.
    assert_eq!(
        (
            counts.retransmitted_packets,
            counts.spurious_retransmissions
        ),
        (1, 0)
    );
}

#[test]
fn retransmitted_segment_gives_no_rtt_sample() {
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
fn ack_of_first_packet_end_gives_rtt_despite_bundles() {
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
fn packets_in_flight_count_only_new_bytes() {
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
