use std::net::IpAddr;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::Class;
use crate::Direction::{Backward, Forward};
use crate::packet::Packet;
use crate::pair::{self, Arrival, Options};
use crate::script::{
    MS, Record, Script, analyse_both, carry, endpoint, established, one_message,
    repaired_by_a_bundle,
};

const ONE_WAY: i64 = 75 * MS;
const AHEAD: i64 = 3_600_000 * MS;

/// Packets 1 to 3 are the handshake, complete at 150 ms.
fn arrivals(record: &Record) -> Vec<bool> {
    let data = record
        .fates
        .iter()
        .filter(|fate| fate.class != Class::Control);
    data.map(|fate| matches!(fate.arrival, Arrival::Delivered { .. }))
        .collect()
}

#[test]
fn what_arrives_is_delivered_in_order_without_waiting() {
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
    let [forward, backward] = record.only().passages;
    assert_eq!((forward.delivered_packets, forward.lost_packets), (6, 0));
    assert_eq!((backward.delivered_packets, backward.lost_packets), (4, 0));
    assert_eq!((forward.delivered_bytes, forward.unseen_bytes), (200, 0));
    assert!(
        record
            .fates
            .iter()
            .all(|fate| fate.raw_delay_ns() == Some(ONE_WAY))
    );
}

#[test]
fn a_bundle_that_brings_a_lost_byte_is_a_hit() {
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
    let passage = record.only().passages[0];
    assert_eq!((passage.bundle_hits, passage.bundle_misses), (1, 1));
    assert_eq!((passage.repaired_bytes, passage.needless_bytes), (100, 100));
    assert_eq!((passage.lost_data_packets, passage.lost_bytes), (1, 100));
}

#[test]
fn later_bytes_wait_behind_a_missing_one() {
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
fn losses_in_a_row_are_one_run() {
    let mut script = established();
    for message in 0..8 {
        script
            .at(200 + message * 30)
            .data(message * 10 + 1, message * 10 + 11);
    }
    script.at(700).data(1, 81).at(900).ack(81).at(950).close(81);
    let (here, there) = carry(&script, ONE_WAY, 0, &[5, 6, 7, 9]);
    let passage = analyse_both(&here, &there).0.only().passages[0];
    assert_eq!(passage.loss_runs[..4], [1, 0, 1, 0]);
    assert_eq!((passage.longest_loss_run, passage.lost_packets), (3, 4));
}

#[test]
fn lost_acks_are_lost_packets_of_the_way_back() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(350).ack(101).at(380).ack(201).at(400).close(201);
    let (here, there) = carry(&script, ONE_WAY, 0, &[6]);
    let (record, _) = analyse_both(&here, &there);
    let [forward, backward] = record.only().passages;
    assert_eq!((forward.lost_packets, backward.lost_packets), (0, 1));
    assert_eq!(
        record.summary(),
        [(1, 101, 1, Some(380)), (101, 201, 1, Some(380))]
    );
}

#[test]
fn equal_packets_are_matched_one_for_one() {
    let mut script = established();
    for at in [200, 400, 800] {
        script.at(at).data(1, 101);
        script.last().ip_id = None;
    }
    script.at(950).ack(101).at(1000).close(101);
    let (here, there) = carry(&script, ONE_WAY, 0, &[]);
    let (record, _) = analyse_both(&here, &there);
    let passage = record.only().passages[0];
    assert_eq!((passage.delivered_packets, passage.lost_packets), (7, 0));
    let mut delays = record.fates.iter().map(pair::Fate::raw_delay_ns);
    assert!(delays.all(|delay| delay == Some(ONE_WAY)));
}

#[test]
fn a_duplicate_made_by_the_network_is_counted_apart() {
    let script = one_message();
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    let mut duplicate = *there.iter().find(|packet| packet.payload_len > 0).unwrap();
    duplicate.at_ns += 20 * MS;
    there.push(duplicate);
    there.sort_by_key(|packet| packet.at_ns);
    let (record, _) = analyse_both(&here, &there);
    let passage = record.only().passages[0];
    assert_eq!(
        (passage.duplicated_packets, passage.unmatched_packets),
        (1, 0)
    );
    assert_eq!((passage.lost_packets, passage.delivered_bytes), (0, 100));
    assert_eq!(record.only().forward.retransmitted_packets, 0);
}

#[test]
fn a_duplicate_made_by_the_capture_is_left_out() {
    let script = one_message();
    let (here, there) = carry(&script, ONE_WAY, 0, &[]);
    let twice = |packets: &[Packet]| -> Vec<Packet> {
        let again = packets.iter().map(|packet| Packet {
            at_ns: packet.at_ns + 5_000,
            ..*packet
        });
        let mut all: Vec<_> = packets.iter().copied().chain(again).collect();
        all.sort_by_key(|packet| packet.at_ns);
        all
    };
    let (record, _) = analyse_both(&twice(&here), &twice(&there));
    let connection = record.only();
    assert_eq!(connection.passages[0].duplicated_packets, 0);
    assert_eq!(connection.passages[0].unmatched_packets, 0);
    assert_eq!(connection.forward.retransmitted_packets, 0);
    assert_eq!(connection.forward.repeated_packets, 2 * 5);
}

#[test]
fn what_the_path_doubles_at_once_is_counted() {
    let script = one_message();
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    let data = there.iter().position(|packet| packet.number == 4).unwrap();
    let mut again = there[data];
    again.at_ns += 5_000;
    there.insert(data + 1, again);
    let (record, _) = analyse_both(&here, &there);
    let connection = record.only();
    assert_eq!(connection.passages[0].duplicated_packets, 1);
    assert_eq!(connection.forward.repeated_packets, 0);
}

#[test]
fn addresses_that_are_changed_on_the_way_are_found() {
    let script = one_message();
    let (here, mut there) = carry(&script, ONE_WAY, AHEAD, &[]);
    let outside = endpoint("203.0.113.7:61000");
    for packet in &mut there {
        for end in [&mut packet.from, &mut packet.to] {
            if *end == script.client {
                *end = outside;
            }
        }
    }
    let (record, finding) = analyse_both(&here, &there);
    assert_eq!(finding.translated_connections, 1);
    assert_eq!(record.only().passages[0].lost_packets, 0);
    assert_eq!(record.only().passages[0].delivered_bytes, 100);
}

#[test]
fn addresses_that_are_changed_are_found_in_later_connections_too() {
    let mut script = established();
    for message in 0..10_500 {
        script
            .at(200 + message * 30)
            .data(message * 10 + 1, message * 10 + 11);
        script.at(350 + message * 30).ack(message * 10 + 11);
    }
    let mut late = Script::new();
    late.client = endpoint("192.0.2.1:50000");
    late.initial = [12_345_678, 3];
    late.at(330_000).syn();
    late.at(330_150).syn_ack();
    late.packet(Forward, 1, 0);
    late.at(330_200)
        .data(1, 101)
        .at(330_350)
        .ack(101)
        .close(101);
    script.packets.extend(late.packets);
    script.packets.sort_by_key(|packet| packet.at_ns);
    for (number, packet) in (1..).zip(&mut script.packets) {
        packet.number = number;
    }
    let inside = late.client;
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for client in [script.client, inside] {
        let mut part = script.clone();
        part.client = client;
        part.packets
            .retain(|packet| packet.from == client || packet.to == client);
        let (this, that) = carry(&part, ONE_WAY, AHEAD, &[]);
        here.extend(this);
        there.extend(that);
    }
    for packets in [&mut here, &mut there] {
        packets.sort_by_key(|packet| packet.at_ns);
    }
    for packet in &mut there {
        for end in [&mut packet.from, &mut packet.to] {
            if *end == inside {
                *end = endpoint("203.0.113.7:61000");
            }
        }
    }
    let (record, finding) = analyse_both(&here, &there);
    assert_eq!(finding.translated_connections, 1);
    assert_eq!(record.connections.len(), 2);
    let passage = record.connections[1].passages[0];
    assert_eq!(
        (passage.delivered_bytes, passage.unmatched_packets),
        (100, 0)
    );
}

#[test]
fn addresses_that_are_changed_on_the_way_may_be_given() {
    let script = one_message();
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    let outside: IpAddr = "203.0.113.7".parse().unwrap();
    let changed = endpoint("203.0.113.7:40000");
    for packet in &mut there {
        // Nothing else is left to know it by.
        packet.ip_id = packet.ip_id.map(|id| id ^ 0x5555);
        packet.window ^= 1;
        for end in [&mut packet.from, &mut packet.to] {
            if *end == script.client {
                *end = changed;
            }
        }
    }
    let options = Options {
        addresses: vec![(outside, "192.0.2.1".parse().unwrap())],
        ..Options::default()
    };
    let (record, _) = pair::analyse(
        here.into_iter(),
        there.into_iter(),
        &options,
        Record::default(),
    );
    let passage = record.only().passages[0];
    assert_eq!(passage.delivered_bytes, 100);
}

#[test]
fn segments_that_are_cut_on_the_way_are_not_lost() {
    let mut script = established();
    script
        .at(200)
        .data(1, 2921)
        .at(350)
        .ack(2921)
        .at(400)
        .close(2921);
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    let place = there
        .iter()
        .position(|packet| packet.payload_len > 0)
        .unwrap();
    let mut second = there[place];
    there[place].payload_len = 1460;
    second.payload_len = 1460;
    second.seq += 1460;
    second.at_ns += MS;
    there.insert(place + 1, second);
    let (record, _) = analyse_both(&here, &there);
    let passage = record.only().passages[0];
    assert_eq!((passage.lost_packets, passage.unknown_packets), (0, 1));
    assert_eq!(
        (passage.unmatched_packets, passage.delivered_bytes),
        (2, 2920)
    );
    assert_eq!(
        record.deliveries(),
        [
            (1, Some((275, None, Some(275), None))),
            (1461, Some((276, None, Some(276), None)))
        ]
    );
}

#[test]
fn packets_that_change_places_are_found_again() {
    let mut script = established();
    for message in 0..300 {
        script
            .at(200 + message)
            .data(message * 10 + 1, message * 10 + 11);
    }
    script.at(900).ack(3001).at(950).close(3001);
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    let first = there
        .iter()
        .position(|packet| packet.payload_len > 0)
        .unwrap();
    let data = &mut there[first..first + 300];
    for pair in data.chunks_mut(70) {
        let times: Vec<i64> = pair.iter().map(|packet| packet.at_ns).collect();
        pair.reverse();
        for (packet, at_ns) in pair.iter_mut().zip(times) {
            packet.at_ns = at_ns;
        }
    }
    let (record, _) = analyse_both(&here, &there);
    let passage = record.only().passages[0];
    assert_eq!((passage.lost_packets, passage.unmatched_packets), (0, 0));
    assert_eq!(passage.delivered_bytes, 3000);
    let blocked = |(_, range): &&(_, crate::Range)| range.delivery.unwrap().behind.is_some();
    assert_eq!(record.ranges.iter().filter(blocked).count(), 4 * 69 + 19);
}

#[test]
fn bytes_that_the_receivers_trace_misses_are_counted() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(350).ack(101).at(380).ack(201).at(400).close(201);
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    there.retain(|packet| packet.number != 4);
    let (record, _) = analyse_both(&here, &there);
    assert_eq!(record.only().passages[0].unseen_bytes, 100);
    assert_eq!(record.ranges[0].1.delivery, None);
    let second = record.ranges[1].1.delivery.unwrap();
    // The ACK of the first left before the second arrived.
    assert_eq!(
        (second.in_order_ns(), second.behind),
        (Some(305 * MS), None)
    );
}

#[test]
fn nothing_is_lost_while_the_other_trace_is_off() {
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
    let passage = analyse_both(&here, &there).0.only().passages[0];
    assert_eq!((passage.delivered_packets, passage.lost_packets), (333, 0));
    // ACKs at the sender say of nearly all the others that they arrived.
    let others = passage.unknown_packets + passage.unseen_packets;
    assert_eq!(others, 2000 - 333 + 2);
}

#[test]
fn one_that_took_very_long_leaves_no_doubt_of_what_left_before_others_that_arrived() {
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
    let passage = analyse_both(&here, &there).0.only().passages[0];
    assert_eq!((passage.lost_packets, passage.unknown_packets), (1, 0));
}

#[test]
fn a_connection_with_the_ports_of_an_earlier_one_has_its_own_packets_at_both_ends() {
    let mut both = one_message();
    let mut second = Script::new();
    second.initial = [3_000_000_000, 9];
    second.at(1000).syn();
    second.at(1150).syn_ack();
    second.packet(Forward, 1, 0);
    second.at(1200).data(1, 51).at(1350).ack(51);
    both.packets.extend(second.packets);
    let (here, there) = carry(&both, ONE_WAY, AHEAD, &[]);
    let record = analyse_both(&here, &there).0;
    let packets = record.connections.iter();
    let packets: Vec<_> = packets
        .map(|connection| (connection.forward.packets, connection.backward.packets))
        .collect();
    assert_eq!(packets, [(5, 3), (3, 2)]);
}

#[test]
fn drifting_clocks_and_random_losses_are_told_exactly() {
    for (seed, ppm) in [(1, 100.0), (2, -100.0)] {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut script = established();
        let (mut here, mut there) = carry(&script, ONE_WAY, 0, &[]);
        script.packets.clear();
        let (mut lost, mut last_lost) = (0, 0);
        // A thin stream of five minutes that bundles one segment; ACKs are never lost.
        for message in 0..10_000_i64 {
            let at_ns = (200 + message * 30) * MS;
            let begin = (message - 1).max(0) * 100 + 1;
            let mut packet = *script.packet(Forward, begin, (message * 100 + 101 - begin) as u32);
            packet.at_ns = at_ns;
            packet.number = here.len() as u64 + 1;
            here.push(packet);
            // Two in a row would need a retransmission.
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
        let (record, finding) = analyse_both(&here, &there);
        let found = finding.clock.drift_ppm().unwrap();
        assert!((found - ppm).abs() < 1.0, "{found} ppm instead of {ppm}");
        let passage = record.only().passages[0];
        // Those of the last moments may count as unknown.
        let gone = passage.lost_packets + passage.unknown_packets;
        assert_eq!(gone, lost);
        assert!(passage.unknown_packets <= 10, "{passage:?}");
        assert_eq!(record.only().passages[1].lost_packets, 0);
        let fit = finding.clock.there;
        for fate in &record.fates {
            if let (Forward, Some(raw)) = (fate.direction, fate.raw_delay_ns()) {
                let variation = fit.variation_ns(fate.sent_ns, raw).unwrap() / MS as f64;
                assert!((-0.01..8.3).contains(&variation), "{variation} ms");
            }
        }
    }
}

#[test]
fn a_server_that_sends_is_analysed_at_its_own_trace() {
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
    assert_eq!(record.only().passages[1].delivered_bytes, 500);
}
