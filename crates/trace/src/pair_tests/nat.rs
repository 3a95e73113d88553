use super::*;

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
