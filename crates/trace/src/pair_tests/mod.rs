mod delivery;

use std::net::IpAddr;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::Direction::{Backward, Forward};
use crate::event::{Arrival, Disposition};
use crate::packet::Packet;
use crate::pair::{self, PairOptions};
use crate::script::{
    MS, Record, Script, analyse_both, carry, copied_messages, endpoint, established, one_message,
    repaired_by_a_bundle,
};
use crate::{Class, ReadTime, Side};

const ONE_WAY: i64 = 75 * MS;
const AHEAD: i64 = 3_600_000 * MS;

/// Packets 1 to 3 are the handshake, complete at 150 ms.
fn arrivals(record: &Record) -> Vec<bool> {
    let data = record
        .dispositions
        .iter()
        .filter(|disposition| disposition.class != Class::Control);
    data.map(|disposition| matches!(disposition.arrival, Arrival::Delivered { .. }))
        .collect()
}

#[test]
fn equal_packets_match_one_to_one() {
    let mut script = established();
    for at in [200, 400, 800] {
        script.at(at).data(1, 101);
        script.last().ip_id = None;
    }
    script.at(950).ack(101).at(1000).close(101);
    let (here, there) = carry(&script, ONE_WAY, 0, &[]);
    let (record, _) = analyse_both(&here, &there);
    let delivery_stats = record.only().delivery_stats[0];
    assert_eq!(
        (
            delivery_stats.delivered_packets,
            delivery_stats.lost_packets
        ),
        (7, 0)
    );
    let mut delays = record.dispositions.iter().map(Disposition::raw_delay_ns);
    assert!(delays.all(|delay| delay == Some(ONE_WAY)));
}

/// Which of two equal packets arrived is unknown; how many were lost is not.
#[test]
fn equal_packets_in_transit_have_no_delay() {
    for lost in [4, 5] {
        let mut script = established();
        for at in [1000, 3000] {
            script.at(at).data(1, 101);
            script.last().ip_id = Some(0);
        }
        script.at(3150).ack(101);
        script.messages(19, (3200, 200), 150, 101);
        let (here, mut there) = carry(&script, ONE_WAY, 0, &[lost]);
        // Either copy arrives at one time, after both were sent.
        let data = there.iter_mut().find(|it| it.payload_len > 0).unwrap();
        data.at_ns = 3000 * MS + ONE_WAY;
        there.sort_by_key(|packet| packet.at_ns);
        let (record, _) = analyse_both(&here, &there);
        let stats = record.only().delivery_stats[0];
        assert_eq!((stats.lost_packets, stats.duplicated_packets), (1, 0));
        let raw = record
            .dispositions
            .iter()
            .filter_map(Disposition::raw_delay_ns);
        assert!(raw.filter(|raw| *raw > 0).all(|raw| raw == ONE_WAY));
        assert_eq!(record.deliveries()[0].1.unwrap().1, None, "copy");
    }
}

/// A trace against itself: all delays are 0, and the receiver's packets follow the sender's.
#[test]
fn trace_against_itself_loses_and_duplicates_nothing() {
    for (opened_by_client, ids) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut script = established();
        for message in 0..30 {
            let (at, start) = (200 + message * 100, message * 100 + 1);
            script
                .at(at)
                .data(start, start + 100)
                .at(at + 10)
                .data(start, start + 100);
            script.packet(Backward, message * 10 + 1, 10);
            if message % 7 == 3 {
                // Captured twice, on a link that is not doubled.
                let copy = *script.last();
                script.packets.push(copy);
            }
            // Equal ACKs, some at one time.
            script
                .at(at + 20)
                .ack(start)
                .ack(start)
                .at(at + 21)
                .ack(start);
            script.at(at + 50).ack(start + 100);
        }
        for packet in &mut script.packets {
            packet.ip_id = packet.ip_id.filter(|_| ids);
        }
        if !opened_by_client {
            script.packets.drain(..3);
            script.packets.rotate_left(2);
            script.packets.sort_by_key(|packet| packet.at_ns);
        }
        for (number, packet) in (1..).zip(&mut script.packets) {
            packet.number = number;
        }
        let (record, summary) = analyse_both(&script.packets, &script.packets);
        for stats in record.only().delivery_stats {
            let counts = [
                stats.lost_packets,
                stats.duplicated_packets,
                stats.unmatched_packets,
                stats.unknown_packets,
            ];
            assert_eq!(counts, [0; 4], "{opened_by_client} {ids}");
        }
        assert_eq!(summary.clock.round_trip_ns(0), Some(0.0));
    }
}

#[test]
fn needless_retransmission_is_spurious_at_receiver() {
    for (lost, spurious) in [(&[][..], 1), (&[4], 0)] {
        let mut script = established();
        script
            .at(200)
            .data(1, 101)
            .at(300)
            .data(1, 101)
            .at(460)
            .ack(101);
        let (here, there) = carry(&script, ONE_WAY, 0, lost);
        let record = analyse_both(&here, &there).0;
        let stats = record.only().delivery_stats[0];
        assert_eq!(stats.spurious_retransmissions, spurious);
    }
}

#[test]
fn network_duplicate_is_counted_separately() {
    let script = one_message();
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    let mut duplicate = *there.iter().find(|packet| packet.payload_len > 0).unwrap();
    duplicate.at_ns += 20 * MS;
    there.push(duplicate);
    there.sort_by_key(|packet| packet.at_ns);
    let (record, _) = analyse_both(&here, &there);
    let delivery_stats = record.only().delivery_stats[0];
    assert_eq!(
        (
            delivery_stats.duplicated_packets,
            delivery_stats.unmatched_packets
        ),
        (1, 0)
    );
    assert_eq!(
        (delivery_stats.lost_packets, delivery_stats.delivered_bytes),
        (0, 100)
    );
    assert_eq!(record.only().forward.retransmitted_packets, 0);
}

#[test]
fn capture_duplicate_is_ignored() {
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
    assert_eq!(connection.delivery_stats[0].duplicated_packets, 0);
    assert_eq!(connection.delivery_stats[0].unmatched_packets, 0);
    assert_eq!(connection.forward.retransmitted_packets, 0);
    assert_eq!(connection.forward.repeated_packets, 2 * 5);
}

#[test]
fn link_captured_twice_duplicates_nothing() {
    for ids in [true, false] {
        let mut script = established();
        script.messages(20, (200, 100), 150, 1);
        for packet in &mut script.packets {
            packet.ip_id = packet.ip_id.filter(|_| ids);
        }
        let (here, there) = carry(&script, ONE_WAY, AHEAD, &[11]);
        let client = script.client;
        let twice = |packets: &[Packet]| -> Vec<Packet> {
            let doubled = packets.iter().filter(|it| it.from == client);
            let again = doubled.map(|it| Packet {
                at_ns: it.at_ns + 60_000,
                ..*it
            });
            let mut all: Vec<_> = packets.iter().copied().chain(again).collect();
            all.sort_by_key(|packet| packet.at_ns);
            all
        };
        let record = analyse_both(&twice(&here), &twice(&there)).0;
        let stats = record.only().delivery_stats;
        let lost = stats.map(|stats| (stats.lost_packets, stats.duplicated_packets));
        assert_eq!(lost, [(0, 0), (1, 0)]);
        assert_eq!(record.only().forward.retransmitted_packets, 0);
    }
}

/// The packet counts as delivered by whichever arrives first.
#[test]
fn copies_arrive_or_get_lost_unlike_captured_duplicates() {
    for ids in [true, false] {
        let mut script = copied_messages(20, |message| message > 1);
        for packet in &mut script.packets {
            packet.ip_id = packet.ip_id.filter(|_| ids);
        }
        // The packet of the first message, and the copy of the second.
        let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4, 8]);
        let record = analyse_both(&here, &there).0;
        let (counts, stats) = (record.only().forward, record.only().delivery_stats[0]);
        assert_eq!((counts.copied_packets, counts.repeated_packets), (20, 0));
        assert_eq!((stats.delivered_copies, stats.duplicated_packets), (18, 0));
        assert_eq!((stats.lost_packets, stats.unmatched_packets), (0, 0));
        assert_eq!((stats.delivered_packets, stats.delivered_bytes), (22, 2000));
    }
}

#[test]
fn immediate_network_duplicate_is_counted() {
    let script = one_message();
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    let data = there.iter().position(|packet| packet.number == 4).unwrap();
    let mut again = there[data];
    again.at_ns += 5_000;
    there.insert(data + 1, again);
    let (record, _) = analyse_both(&here, &there);
    let connection = record.only();
    assert_eq!(connection.delivery_stats[0].duplicated_packets, 1);
    assert_eq!(connection.forward.repeated_packets, 0);
}

#[test]
fn segments_split_on_path_are_not_lost() {
    let mut script = established();
    script
        .at(200)
        .data(1, 2921)
        .at(350)
        .ack(2921)
        .at(400)
        .close(2921);
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    let index = there
        .iter()
        .position(|packet| packet.payload_len > 0)
        .unwrap();
    let mut second = there[index];
    there[index].payload_len = 1460;
    second.payload_len = 1460;
    second.seq += 1460;
    second.at_ns += MS;
    there.insert(index + 1, second);
    let (record, _) = analyse_both(&here, &there);
    let delivery_stats = record.only().delivery_stats[0];
    assert_eq!(
        (delivery_stats.lost_packets, delivery_stats.unknown_packets),
        (0, 1)
    );
    assert_eq!(
        (
            delivery_stats.unmatched_packets,
            delivery_stats.delivered_bytes
        ),
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

/// Offloaded packets of 2,920 bytes. The path splits them; `joins`: the receiver joins the parts of
/// two. It loses both parts of the packets in `lost`.
fn offloaded(joins: bool, lost: &[u64]) -> Record {
    let mut script = established();
    let mut position = 1;
    for message in 0..40 {
        let at = 200 + message * 200;
        script.at(at).data(position, position + 2920);
        if lost.contains(&script.last().number) {
            script.at(at + 160).data(position, position + 2920);
        }
        position += 2920;
        script.at(at + 320).ack(position);
    }
    script.packets.sort_by_key(|packet| packet.at_ns);
    let (here, there) = carry(&script, ONE_WAY, AHEAD, lost);
    let mut regrouped: Vec<Packet> = Vec::new();
    for packet in there {
        if packet.payload_len == 0 {
            regrouped.push(packet);
        } else if joins {
            let last = regrouped.iter_mut().rfind(|it| it.payload_len == 2920);
            match last.filter(|last| last.seq.wrapping_add(2920) == packet.seq) {
                Some(last) => (last.payload_len, last.at_ns) = (5840, packet.at_ns),
                None => regrouped.push(packet),
            }
        } else {
            let first = Packet {
                payload_len: 1460,
                ..packet
            };
            let second = Packet {
                seq: packet.seq.wrapping_add(1460),
                at_ns: packet.at_ns + 10_000,
                ..first
            };
            regrouped.extend([first, second]);
        }
    }
    regrouped.sort_by_key(|packet| packet.at_ns);
    analyse_both(&here, &regrouped).0
}

#[test]
fn offloaded_packet_without_any_part_is_lost() {
    for lost in [&[][..], &[14, 45]] {
        let stats = offloaded(false, lost).only().delivery_stats[0];
        let all = lost.len() as u64;
        assert_eq!(
            (stats.lost_data_packets, stats.lost_bytes),
            (all, all * 2920)
        );
        assert_eq!(stats.unknown_packets, 40);
    }
    let stats = offloaded(true, &[]).only().delivery_stats[0];
    // Of two joined packets, the first was acknowledged before both arrived.
    let (unknown, unseen) = (stats.unknown_packets, stats.unseen_packets);
    assert_eq!((stats.lost_packets, unknown, unseen), (0, 20, 20));
}

/// Captures on several processors may show the ACK of a packet before the packet.
#[test]
fn ack_captured_before_its_packet_hides_no_loss() {
    let mut script = established();
    script
        .at(200)
        .data(1, 101)
        .at(500)
        .data(1, 101)
        .at(650)
        .ack(101);
    script.messages(19, (900, 100), 150, 101);
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[4]);
    let data = there.iter().position(|it| it.payload_len > 0).unwrap();
    there.swap(data, data + 1);
    let stats = analyse_both(&here, &there).0.only().delivery_stats[0];
    assert_eq!((stats.lost_packets, stats.unknown_packets), (1, 0));
}

#[test]
fn reordered_packets_are_matched() {
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
    let delivery_stats = record.only().delivery_stats[0];
    assert_eq!(
        (
            delivery_stats.lost_packets,
            delivery_stats.unmatched_packets
        ),
        (0, 0)
    );
    assert_eq!(delivery_stats.delivered_bytes, 3000);
    let blocked = |(_, range): &&(_, crate::Range)| range.delivery.unwrap().waited_for.is_some();
    assert_eq!(record.ranges.iter().filter(blocked).count(), 4 * 69 + 19);
}

#[test]
fn reused_ports_keep_packets_separate_at_both_ends() {
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
fn stray_packet_in_both_traces_splits_no_connection() {
    let mut script = established();
    script.messages(20, (200, 100), 150, 1);
    script.at(1010).data(0x9000_0000, 0x9000_0010);
    script.packets.sort_by_key(|packet| packet.at_ns);
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[]);
    let record = analyse_both(&here, &there).0;
    let connection = record.only();
    let counts = &connection.forward;
    assert_eq!((counts.stray_packets, counts.data_packets), (1, 20));
    let delivery_stats = connection.delivery_stats[0];
    assert_eq!(
        (delivery_stats.delivered_bytes, delivery_stats.lost_packets),
        (2000, 0)
    );
}

#[test]
fn reused_ports_without_handshake_match_at_both_ends() {
    for ack_ms in [150, 450] {
        let mut script = one_message();
        script.messages(10, (1000, 200), ack_ms, 0x9000_0000);
        let (here, there) = carry(&script, ONE_WAY, AHEAD, &[]);
        let record = analyse_both(&here, &there).0;
        let [_, second] = &record.connections[..] else {
            panic!("{:?}", record.connections);
        };
        let delivery_stats = second
            .delivery_stats
            .map(|it| (it.delivered_packets, it.unmatched_packets));
        assert_eq!(delivery_stats, [(10, 0), (10, 0)], "{ack_ms}");
        assert_eq!(second.delivery_stats[0].delivered_bytes, 1000, "{ack_ms}");
        let strays = record.connections.iter().map(|it| it.forward.stray_packets);
        assert_eq!(strays.sum::<u64>(), 0, "{ack_ms}");
    }
}

#[test]
fn nat_addresses_are_found() {
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
    let (record, summary) = analyse_both(&here, &there);
    assert_eq!(summary.translated_connections, 1);
    assert_eq!(record.only().delivery_stats[0].lost_packets, 0);
    assert_eq!(record.only().delivery_stats[0].delivered_bytes, 100);
}

#[test]
fn nat_addresses_are_found_in_later_connections() {
    let mut script = established();
    for message in 0..10_500 {
        script
            .at(200 + message * 30)
            .data(message * 10 + 1, message * 10 + 11);
        script.at(350 + message * 30).ack(message * 10 + 11);
    }
    let mut later = Script::new();
    later.client = endpoint("192.0.2.1:50000");
    later.initial = [12_345_678, 3];
    later.at(330_000).syn();
    later.at(330_150).syn_ack();
    later.packet(Forward, 1, 0);
    later
        .at(330_200)
        .data(1, 101)
        .at(330_350)
        .ack(101)
        .close(101);
    script.packets.extend(later.packets);
    script.packets.sort_by_key(|packet| packet.at_ns);
    for (number, packet) in (1..).zip(&mut script.packets) {
        packet.number = number;
    }
    let inside = later.client;
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
    let (record, summary) = analyse_both(&here, &there);
    assert_eq!(summary.translated_connections, 1);
    assert_eq!(record.connections.len(), 2);
    let delivery_stats = record.connections[1].delivery_stats[0];
    assert_eq!(
        (
            delivery_stats.delivered_bytes,
            delivery_stats.unmatched_packets
        ),
        (100, 0)
    );
}

#[test]
fn nat_addresses_may_be_given() {
    let script = one_message();
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    let outside: IpAddr = "203.0.113.7".parse().unwrap();
    let changed = endpoint("203.0.113.7:40000");
    for packet in &mut there {
        // No other field identifies the packet.
        packet.ip_id = packet.ip_id.map(|id| id ^ 0x5555);
        packet.window ^= 1;
        for end in [&mut packet.from, &mut packet.to] {
            if *end == script.client {
                *end = changed;
            }
        }
    }
    let options = PairOptions {
        addresses: vec![(outside, "192.0.2.1".parse().unwrap())],
        ..PairOptions::default()
    };
    let (record, _) = pair::analyse(
        here.into_iter(),
        there.into_iter(),
        &options,
        Record::default(),
    );
    let delivery_stats = record.only().delivery_stats[0];
    assert_eq!(delivery_stats.delivered_bytes, 100);
}
