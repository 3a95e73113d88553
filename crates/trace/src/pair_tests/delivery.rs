//! Deliveries, losses, and connections missing in one of two traces.

use super::*;
use crate::packet::Endpoint;
use crate::script::{NOT_SHOWN, SHOWN, is_shown, traces, with};

#[test]
fn in_order_arrivals_are_readable_immediately() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(350).ack(101).at(380).ack(201).at(400).close(201);
    let (here, there) = carry(&script, ONE_WAY, 0, &[]);
    let (record, _) = analyse_both(&here, &there);
    assert_eq!(
        record.deliveries(),
        [
            (1, Some((275, Some(0), Some(275), None))),
            (101, Some((305, Some(0), Some(305), None)))
        ]
    );
    assert_eq!(
        record.summary(),
        [(1, 101, 1, Some(350)), (101, 201, 1, Some(380))]
    );
    let [forward, backward] = record.only().delivery_stats;
    assert_eq!((forward.delivered_packets, forward.lost_packets), (6, 0));
    assert_eq!((backward.delivered_packets, backward.lost_packets), (4, 0));
    assert_eq!((forward.delivered_bytes, forward.unseen_bytes), (200, 0));
    assert!(
        record
            .dispositions
            .iter()
            .all(|disposition| disposition.raw_delay_ns() == Some(ONE_WAY))
    );
}

#[test]
fn bundle_with_lost_byte_is_hit() {
    let script = repaired_by_a_bundle();
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4]);
    let (record, _) = analyse_both(&here, &there);
    let ahead = AHEAD / MS;
    assert_eq!(
        record.deliveries(),
        [
            (1, Some((305 + ahead, Some(1), Some(305 + ahead), None))),
            (101, Some((305 + ahead, Some(0), Some(305 + ahead), None))),
            (201, Some((335 + ahead, Some(0), Some(335 + ahead), None)))
        ]
    );
    assert_eq!(arrivals(&record), [false, true, true]);
    let delivery_stats = record.only().delivery_stats[0];
    assert_eq!(
        (delivery_stats.bundle_hits, delivery_stats.bundle_misses),
        (1, 1)
    );
    assert_eq!(
        (delivery_stats.repaired_bytes, delivery_stats.needless_bytes),
        (100, 100)
    );
    assert_eq!(
        (delivery_stats.lost_data_packets, delivery_stats.lost_bytes),
        (1, 100)
    );
}

#[test]
fn later_bytes_wait_for_missing_byte() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(260).data(201, 301).at(380).ack(1).at(410).ack(1);
    script
        .at(500)
        .data(1, 101)
        .at(650)
        .ack(301)
        .at(700)
        .close(301);
    let (here, there) = carry(&script, ONE_WAY, 0, &[4]);
    let (record, _) = analyse_both(&here, &there);
    assert_eq!(
        record.deliveries(),
        [
            (1, Some((575, Some(1), Some(575), None))),
            (101, Some((305, Some(0), Some(575), Some(1)))),
            (201, Some((335, Some(0), Some(575), Some(1))))
        ]
    );
    let blocked: Vec<_> = record
        .ranges
        .iter()
        .map(|(_, range)| range.delivery.unwrap().blocked_ns())
        .collect();
    assert_eq!(blocked, [Some(0), Some(270 * MS), Some(240 * MS)]);
}

#[test]
fn consecutive_losses_are_one_run() {
    let mut script = established();
    for message in 0..8 {
        script
            .at(200 + message * 30)
            .data(message * 10 + 1, message * 10 + 11);
    }
    script.at(700).data(1, 81).at(900).ack(81).at(950).close(81);
    let (here, there) = carry(&script, ONE_WAY, 0, &[5, 6, 7, 9]);
    let delivery_stats = analyse_both(&here, &there).0.only().delivery_stats[0];
    assert_eq!(delivery_stats.loss_runs[..4], [1, 0, 1, 0]);
    assert_eq!(
        (delivery_stats.longest_loss_run, delivery_stats.lost_packets),
        (3, 4)
    );
}

#[test]
fn lost_acks_are_losses_of_reverse_path() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(350).ack(101).at(380).ack(201).at(400).close(201);
    let (here, there) = carry(&script, ONE_WAY, 0, &[6]);
    let (record, _) = analyse_both(&here, &there);
    let [forward, backward] = record.only().delivery_stats;
    assert_eq!((forward.lost_packets, backward.lost_packets), (0, 1));
    assert_eq!(
        record.summary(),
        [(1, 101, 1, Some(380)), (101, 201, 1, Some(380))]
    );
}

#[test]
fn sending_server_is_analysed_at_its_own_trace() {
    let mut script = established();
    script.at(200);
    script.packet(Backward, 1, 500);
    script.at(201);
    script.packet(Forward, 1, 0).ack = Some(script.initial[1] + 501);
    let (mut here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    there.sort_by_key(|packet| packet.at_ns);
    here.sort_by_key(|packet| packet.at_ns);
    let (record, _) = analyse_both(&there, &here);
    let (_, range) = &record.ranges[0];
    assert_eq!(range.ack_latency_ns(), Some(151 * MS));
    assert_eq!(range.delivery.unwrap().at_ns, 200 * MS);
    assert_eq!(record.only().delivery_stats[1].delivered_bytes, 500);
}

#[test]
fn bytes_missing_in_receiver_trace_are_unseen() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(350).ack(101).at(380).ack(201).at(400).close(201);
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    there.retain(|packet| packet.number != 4);
    let (record, _) = analyse_both(&here, &there);
    assert_eq!(record.only().delivery_stats[0].unseen_bytes, 100);
    assert_eq!(record.ranges[0].1.delivery, None);
    let second = record.ranges[1].1.delivery.unwrap();
    // The ACK of the first left before the second arrived.
    assert_eq!(
        (second.in_order_ns(), second.waited_for),
        (Some(305 * MS), None)
    );
}

#[test]
fn no_losses_while_receiver_trace_is_off() {
    let mut script = established();
    for message in 0..2000 {
        script
            .at(200 + message * 30)
            .data(message * 10 + 1, message * 10 + 11);
        script.at(350 + message * 30).ack(message * 10 + 11);
    }
    script.packets.sort_by_key(|packet| packet.at_ns);
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    there.retain(|packet| (25_000 * MS..35_000 * MS).contains(&packet.at_ns));
    let delivery_stats = analyse_both(&here, &there).0.only().delivery_stats[0];
    assert_eq!(
        (
            delivery_stats.delivered_packets,
            delivery_stats.lost_packets
        ),
        (333, 0)
    );
    // ACKs at the sender show that nearly all others arrived.
    let others = delivery_stats.unknown_packets + delivery_stats.unseen_packets;
    assert_eq!(others, 2000 - 333 + 2);
}

#[test]
fn very_slow_packet_does_not_hide_earlier_losses() {
    let mut script = established();
    for message in 0..20 {
        script
            .at(200 + message * 30)
            .data(message * 10 + 1, message * 10 + 11);
    }
    script.at(900).ack(161);
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[20]);
    let slow = there.iter_mut().find(|packet| packet.number == 6);
    slow.unwrap().at_ns += 700 * MS;
    there.sort_by_key(|packet| packet.at_ns);
    let delivery_stats = analyse_both(&here, &there).0.only().delivery_stats[0];
    assert_eq!(
        (delivery_stats.lost_packets, delivery_stats.unknown_packets),
        (1, 0)
    );
}

#[test]
fn random_losses_are_exact_despite_clock_drift() {
    for (seed, ppm) in [(1, 100.0), (2, -100.0)] {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut script = established();
        let (mut here, mut there) = carry(&script, ONE_WAY, 0, &[]);
        script.packets.clear();
        let (mut lost, mut last_lost) = (0, 0);
        // A thin stream of five minutes that bundles one segment; ACKs are never lost.
        for message in 0..10_000_i64 {
            let at_ns = (200 + message * 30) * MS;
            let start = (message - 1).max(0) * 100 + 1;
            let mut packet = *script.packet(Forward, start, (message * 100 + 101 - start) as u32);
            packet.at_ns = at_ns;
            packet.number = here.len() as u64 + 1;
            here.push(packet);
            // Two losses in a row would need a retransmission.
            if random.random_ratio(1, 10) && message > last_lost + 1 {
                (lost, last_lost) = (lost + 1, message);
                continue;
            }
            let queue_ns = random.random_range(0..8 * MS);
            packet.at_ns = at_ns + ONE_WAY + queue_ns;
            there.push(packet);
            let mut ack = *script.ack(message * 100 + 101).last();
            ack.at_ns = packet.at_ns;
            there.push(ack);
            ack.at_ns = packet.at_ns + ONE_WAY;
            here.push(ack);
        }
        here.sort_by_key(|packet| packet.at_ns);
        for packet in &mut there {
            packet.at_ns += AHEAD + (packet.at_ns as f64 * ppm / 1e6) as i64;
        }
        let (record, summary) = analyse_both(&here, &there);
        let found = summary.clock.drift_ppm().unwrap();
        assert!((found - ppm).abs() < 1.0, "{found} ppm instead of {ppm}");
        let delivery_stats = record.only().delivery_stats[0];
        // Packets of the last moments may be unknown.
        let gone = delivery_stats.lost_packets + delivery_stats.unknown_packets;
        assert_eq!(gone, lost);
        assert!(delivery_stats.unknown_packets <= 10, "{delivery_stats:?}");
        assert_eq!(record.only().delivery_stats[1].lost_packets, 0);
        let line = summary.clock.there.unwrap();
        for disposition in &record.dispositions {
            if let (Forward, Some(raw)) = (disposition.direction, disposition.raw_delay_ns()) {
                let variation = (raw as f64 - line.at(disposition.sent_ns)) / MS as f64;
                assert!((-0.01..8.3).contains(&variation), "{variation} ms");
            }
        }
    }
}

/// Numbers of the lost packets.
fn lost(record: &Record) -> Vec<u64> {
    let lost = |disposition: &&Disposition| disposition.arrival == Arrival::Lost;
    let lost = record.dispositions.iter().filter(lost);
    lost.map(|disposition| disposition.packet).collect()
}

#[test]
fn connection_opened_from_receiver_side_is_not_reversed() {
    let scripts = [with(5001, SHOWN, true), with(5002, NOT_SHOWN, true)];
    let [here, there] = traces(&scripts, is_shown);
    let (record, _) = analyse_both(&here, &there);
    let host: Endpoint = endpoint("192.0.2.1:80");
    assert_eq!(record.connections.len(), 2);
    for connection in &record.connections {
        assert_eq!(connection.main_sender, host, "{connection:?}");
        assert_eq!(connection.backward.data_packets, 20, "{connection:?}");
        assert!(connection.has_data);
    }
    assert_eq!(lost(&record), [0; 0]);
}

#[test]
fn connection_only_at_receiver_is_not_reversed() {
    let scripts = [with(5001, SHOWN, true), with(5002, SHOWN, true)];
    let [mut here, there] = traces(&scripts, |_| true);
    here.retain(|packet| [packet.from.port, packet.to.port].contains(&5001));
    let (record, _) = analyse_both(&here, &there);
    // All packets of the host at the receiver's trace leave there.
    let sent: Vec<u64> = record
        .connections
        .iter()
        .map(|it| it.forward.packets)
        .collect();
    assert_eq!(sent, [22, 22]);
    assert_eq!(lost(&record), [0; 0]);
}

#[test]
fn connection_in_one_trace_has_no_losses() {
    for opened_by_other in [false, true] {
        let mut not_shown = with(5002, NOT_SHOWN, opened_by_other);
        // The last three packets are not acknowledged before the traces end.
        let until_ns = 540 * MS;
        not_shown
            .packets
            .retain(|packet| packet.at_ns < until_ns - 40 * MS);
        let scripts = [with(5001, SHOWN, false), not_shown];
        let [here, there] = traces(&scripts, is_shown);
        let (record, _) = analyse_both(&here, &there);
        assert_eq!(lost(&record), [0; 0]);
        let unseen = record.dispositions.iter();
        let unseen = unseen.filter(|disposition| disposition.arrival == Arrival::Unseen);
        assert!(unseen.count() >= 17);
        assert_eq!(record.connections[1].only_at, Some(Side::Sender));
        assert_eq!(record.connections[0].only_at, None);
    }
}

#[test]
fn unanswered_syn_to_receiver_host_is_lost() {
    let mut attempt = Script::new();
    attempt.client = endpoint("192.0.2.1:80");
    attempt.server = endpoint(&format!("{SHOWN}:5002"));
    attempt.at(100).syn();
    attempt.at(300).syn();
    let [here, there] = traces(&[with(5001, SHOWN, false), attempt], |packet| {
        packet.to.port != 5002
    });
    let (record, _) = analyse_both(&here, &there);
    assert_eq!(record.connections[1].only_at, None);
    assert_eq!(record.connections[1].delivery_stats[0].lost_packets, 2);
}

#[test]
fn bytes_acked_at_trace_end_are_not_lost() {
    // The receiver's trace misses a message of the last second, its ACK, and later ACKs.
    let script = with(5001, SHOWN, false);
    let missed = |packet: &Packet| match packet.payload_len {
        0 => packet.at_ns >= 400 * MS,
        _ => packet.at_ns == 400 * MS,
    };
    let [here, there] = traces(&[script], |packet| !missed(packet));
    let (record, _) = analyse_both(&here, &there);
    assert_eq!(lost(&record), [0; 0]);
    let delivery_stats = record.only().delivery_stats[0];
    assert_eq!(
        (delivery_stats.unseen_packets, delivery_stats.unseen_bytes),
        (1, 100)
    );
    assert_eq!(delivery_stats.delivered_packets, 2 + 19);
    // Ranges that had arrived after it were read at an unknown time.
    let never = |(_, range): &&(_, crate::Range)| {
        let readable = range.delivery.map(|delivery| delivery.readable);
        readable == Some(ReadTime::Never)
    };
    assert_eq!(record.ranges.iter().filter(never).count(), 0);
}
