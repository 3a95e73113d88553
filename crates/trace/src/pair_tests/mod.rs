mod delivery;

use std::net::IpAddr;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::Direction::{Backward, Forward};
use crate::event::{Arrival, Fate};
use crate::packet::Packet;
use crate::pair::{self, Options};
use crate::script::{
    MS, Record, Script, analyse_both, carry, endpoint, established, one_message,
    repaired_by_a_bundle,
};
use crate::{Class, Readable, Side};

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
    let mut delays = record.fates.iter().map(Fate::raw_delay_ns);
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
fn a_stray_packet_that_both_traces_show_cuts_no_connection() {
    let mut script = established();
    for message in 0..20 {
        let (at, begin) = (200 + message * 100, message * 100 + 1);
        script.at(at).data(begin, begin + 100);
        script.at(at + 150).ack(begin + 100);
    }
    script.at(1010).data(0x9000_0000, 0x9000_0010);
    script.packets.sort_by_key(|packet| packet.at_ns);
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[]);
    let record = analyse_both(&here, &there).0;
    let connection = record.only();
    let counts = &connection.forward;
    assert_eq!((counts.stray_packets, counts.data_packets), (1, 20));
    let passage = connection.passages[0];
    assert_eq!((passage.delivered_bytes, passage.lost_packets), (2000, 0));
}

#[test]
fn a_connection_without_its_opening_and_with_the_ports_of_an_earlier_one_is_whole_at_both_ends() {
    for ack_ms in [150, 450] {
        let mut script = one_message();
        for message in 0..10 {
            let (at, begin) = (1000 + message * 200, 0x9000_0000 + message * 100);
            script.at(at).data(begin, begin + 100);
            script.at(at + ack_ms).ack(begin + 100);
        }
        script.packets.sort_by_key(|packet| packet.at_ns);
        let (here, there) = carry(&script, ONE_WAY, AHEAD, &[]);
        let record = analyse_both(&here, &there).0;
        let [_, second] = &record.connections[..] else {
            panic!("{:?}", record.connections);
        };
        let passages = second
            .passages
            .map(|it| (it.delivered_packets, it.unmatched_packets));
        assert_eq!(passages, [(10, 0), (10, 0)], "{ack_ms}");
        assert_eq!(second.passages[0].delivered_bytes, 1000, "{ack_ms}");
        let strays = record.connections.iter().map(|it| it.forward.stray_packets);
        assert_eq!(strays.sum::<u64>(), 0, "{ack_ms}");
    }
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
