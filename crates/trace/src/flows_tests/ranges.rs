//! Byte ranges and their copies.

use super::{classes, established};
use crate::Direction::{Backward, Forward};
use crate::packet::Packet;
use crate::script::{MS, Script, copied_messages};
use crate::{Class, CopyKind};

#[test]
fn each_segment_sent_once_is_one_range() {
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
fn bundle_splits_into_old_and_new_range() {
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
    assert_eq!((counts.new_bytes, counts.payload_bytes), (200, 300));
    assert_eq!(counts.retransmitted_packets, 0);
}

#[test]
fn nth_retransmission_counts_from_first_copy() {
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
fn partial_retransmission_splits_range() {
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
fn partial_ack_splits_range() {
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
fn fin_with_payload_counts_once() {
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
fn keep_alives_are_not_retransmissions() {
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
fn zero_window_probes_are_not_retransmissions() {
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
fn accepted_window_probe_byte_is_payload() {
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
fn packet_captured_on_two_interfaces_counts_once() {
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

/// A mirror port shows some packets twice.
#[test]
fn fast_copy_on_one_interface_counts_once() {
    for (id, later_ns, acked, repeated) in [
        (Some(7), 100_000, true, 1),
        (Some(0), 100_000, false, 1),
        (None, 100_000, false, 1),
        (None, 100_000, true, 0),
        (Some(7), 1_000_000, true, 1),
        (Some(7), 1_000_001, false, 0),
        (None, 100_001, false, 0),
    ] {
        let mut script = established();
        script.at(10).data(1, 101).data(101, 201);
        script.last().ip_id = id;
        let mut again = *script.last();
        if acked {
            script.ack(101);
        }
        again.at_ns += later_ns;
        script.packets.push(again);
        script.at(60).ack(201);
        let counts = script.analyse().only().forward;
        let expected = (repeated, 1 - repeated, 3 - repeated);
        let (repeated, retransmitted) = (counts.repeated_packets, counts.retransmitted_packets);
        assert_eq!(
            (repeated, retransmitted, counts.data_packets),
            expected,
            "{id:?} {later_ns}"
        );
    }
}

/// A capture that shows packets twice causes no reports of duplicates.
#[test]
fn reported_repeats_are_copies() {
    const MESSAGES: u64 = 30;
    for (percent, copies) in [(100, true), (30, true), (10, false), (0, false)] {
        for (ids, first) in [(true, 0), (false, 0), (true, 3), (false, 3)] {
            let mut script = copied_messages(MESSAGES as i64, |it| it % 10 * 10 < percent);
            script.packets.drain(..first);
            for packet in &mut script.packets {
                packet.ip_id = packet.ip_id.filter(|_| ids);
            }
            let counts = script.analyse().only().forward;
            let expected = if copies { [MESSAGES, 0] } else { [0, MESSAGES] };
            assert_eq!(
                [counts.copied_packets, counts.repeated_packets],
                expected,
                "{percent} {ids} {first}"
            );
            let copied_bytes = expected[0] * 100;
            assert_eq!(counts.copied_bytes, copied_bytes);
            assert_eq!(counts.payload_bytes, MESSAGES * 100 + copied_bytes);
            assert_eq!(
                (counts.data_packets, counts.retransmitted_packets),
                (MESSAGES, 0)
            );
        }
    }
}

/// Without IP identification, only the link shows that its ACKs are not duplicate ACKs.
#[test]
fn doubled_direction_has_no_duplicate_acks() {
    for doubled in [Forward, Backward] {
        let mut script = established();
        for message in 0..20 {
            let (at, start) = (10 + message * 50, message * 100 + 1);
            script
                .at(at)
                .data(start, start + 100)
                .data(start + 100, start + 200);
            script.at(at + 40).ack(start + 100);
        }
        script.packets.iter_mut().for_each(|it| it.ip_id = None);
        let counts = |script: &Script| {
            let record = script.analyse();
            let (forward, backward) = (record.only().forward, record.only().backward);
            let repeated = [forward, backward].map(|it| it.repeated_packets);
            let counts = (forward.retransmitted_packets, backward.duplicate_acks);
            (counts, repeated)
        };
        let (once, _) = counts(&script);
        let mut packets = Vec::new();
        for packet in &script.packets {
            packets.push(*packet);
            if (packet.from == script.client) == (doubled == Forward) {
                packets.push(Packet {
                    at_ns: packet.at_ns + 50_000,
                    ..*packet
                });
            }
        }
        packets.sort_by_key(|packet| packet.at_ns);
        script.packets = packets;
        let (twice, repeated) = counts(&script);
        assert_eq!(once, twice, "{doubled:?}");
        let all = [2 + 40, 1 + 20];
        let expected = if doubled == Forward {
            [all[0], 0]
        } else {
            [0, all[1]]
        };
        assert_eq!(repeated, expected, "{doubled:?}");
    }
}

#[test]
fn fast_copy_with_new_ip_id_is_retransmission() {
    let mut script = established();
    script.at(10).data(1, 101).data(1, 101).at(60).ack(101);
    let counts = script.analyse().only().forward;
    assert_eq!(
        (counts.repeated_packets, counts.retransmitted_packets),
        (0, 1)
    );
}

#[test]
fn equal_acks_without_ip_id_are_duplicate_acks() {
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
fn reordered_segment_in_file_is_new() {
    let mut script = established();
    script.at(10).data(1, 101).data(201, 301).data(101, 201);
    script.at(60).ack(301);
    assert_eq!(classes(&script), [Class::New, Class::New, Class::New]);
    assert_eq!(script.analyse().only().forward.missing_bytes, 0);
}

#[test]
fn spurious_retransmissions_are_counted() {
    let mut script = established();
    script
        .at(10)
        .data(1, 101)
        .data(101, 201)
        .data(201, 301)
        .data(301, 401);
    // Not yet acknowledged, then acknowledged, then covered by SACK, then reported by a DSACK.
    script.at(40).data(1, 101).at(50).ack(101).data(1, 101);
    script
        .at(60)
        .sack(101, &[(201, 401)])
        .data(201, 401)
        .at(70)
        .data(101, 201);
    script.at(80).sack(401, &[(1, 101)]).at(90).ack(401);
    let counts = script.analyse().only().forward;
    let both = (
        counts.spurious_retransmissions,
        counts.retransmitted_packets,
    );
    assert_eq!(both, (3, 4));
}

/// A DSACK of bundled bytes reports the bundle, not a retransmission.
#[test]
fn dsack_of_bundle_reports_no_spurious_retransmission() {
    for bundle_first in [true, false] {
        let mut script = established();
        script.at(10).data(1, 101);
        if bundle_first {
            script.at(20).data(1, 201).at(30).data(1, 101);
        } else {
            script.at(20).data(1, 101).at(30).data(1, 201);
        }
        script.at(60).sack(201, &[(1, 101)]);
        let counts = script.analyse().only().forward;
        assert_eq!(counts.spurious_retransmissions, 0);
    }
}

/// Probes of a closed window are another count.
#[test]
fn zero_windows_are_counted() {
    let mut script = established();
    script.at(10).data(1, 101).at(50).ack(101).last().window = 0;
    script.at(250).data(100, 101).at(290).ack(101).last().window = 0;
    script.at(400).ack(101).at(500);
    script.packet(Backward, 1, 0).window = 0;
    script.last().flags.rst = true;
    let record = script.analyse();
    let counts = (record.only().forward, record.only().backward);
    assert_eq!((counts.0.window_probes, counts.0.zero_windows), (1, 0));
    assert_eq!(counts.1.zero_windows, 2);
}

/// A receiver's trace lacks lost packets, and shows their retransmissions below later bytes.
#[test]
fn packet_below_captured_bytes_fills_a_hole() {
    let mut script = established();
    script.at(10).data(1, 101).at(20).data(201, 301);
    script
        .at(30)
        .data(401, 501)
        .at(52)
        .data(101, 201)
        .at(60)
        .data(301, 401);
    script.at(70).data(301, 401).at(80).ack(501);
    let counts = script.analyse().only().forward;
    assert_eq!(
        (counts.hole_filling_packets, counts.retransmitted_packets),
        (2, 1)
    );
    assert_eq!(counts.shortest_hole_ns, Some(30 * MS));
}

#[test]
fn segment_recorded_after_its_ack_is_new() {
    let mut script = established();
    script.at(10).data(1, 101).at(60).ack(201).data(101, 201);
    script.at(70).data(201, 301).at(120).ack(301);
    assert_eq!(classes(&script), [Class::New, Class::New, Class::New]);
    let counts = script.analyse().only().forward;
    assert_eq!((counts.missing_bytes, counts.stale_bytes), (0, 0));
}

/// Whether or not later bytes were acknowledged in between, and whatever the boundaries.
#[test]
fn bytes_captured_after_their_ack_are_new_once() {
    for acked in [201, 401] {
        let mut script = established();
        script.at(10).data(1, 101).data(201, 301).data(301, 401);
        script.at(60).ack(acked);
        script.at(70).data(101, 201).at(80).data(101, 201);
        script.at(90).data(151, 201).at(130).ack(401);
        let counts = script.analyse().only().forward;
        assert_eq!(
            (counts.new_packets, counts.retransmitted_packets),
            (4, 2),
            "{acked}"
        );
        assert_eq!((counts.new_bytes, counts.stale_bytes), (400, 150));
        assert_eq!(counts.missing_bytes, 0);
    }
    let mut script = established();
    script.at(10).data(1, 101).at(60).ack(501);
    script.at(70).data(301, 401).at(80).data(201, 451);
    let counts = script.analyse().only().forward;
    assert_eq!((counts.new_bytes, counts.stale_bytes), (350, 100));
    assert_eq!(counts.missing_bytes, 150);
}

#[test]
fn acked_bytes_not_in_trace_are_missing_bytes() {
    let mut script = established();
    script.at(10).data(1, 101).data(201, 301).at(60).ack(301);
    let counts = script.analyse().only().forward;
    assert_eq!((counts.missing_bytes, counts.new_bytes), (100, 200));
}

#[test]
fn retransmission_of_acked_bytes_is_stale() {
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
fn segment_above_peer_mss_is_offloaded() {
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
