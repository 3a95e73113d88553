//! Connections that one of two traces does not show, or not all of.

use super::*;
use crate::packet::Endpoint;
use crate::pair::Fate;
use crate::script::hosts::{NOT_SHOWN, SHOWN, is_shown, traces, with};

/// The numbers of packets that were lost.
fn lost(record: &Record) -> Vec<u64> {
    let lost = |fate: &&Fate| fate.arrival == Arrival::Lost;
    let lost = record.fates.iter().filter(lost);
    lost.map(|fate| fate.packet).collect()
}

#[test]
fn what_a_host_opens_to_the_one_at_the_senders_trace_is_not_turned_round() {
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
fn what_the_receivers_trace_shows_alone_is_not_turned_round_either() {
    let scripts = [with(5001, SHOWN, true), with(5002, SHOWN, true)];
    let [mut here, there] = traces(&scripts, |_| true);
    here.retain(|packet| [packet.from.port, packet.to.port].contains(&5001));
    let (record, _) = analyse_both(&here, &there);
    // All that the host at the receiver's trace sent is seen to leave there.
    let sent: Vec<u64> = record
        .connections
        .iter()
        .map(|it| it.forward.packets)
        .collect();
    assert_eq!(sent, [22, 22]);
    assert_eq!(lost(&record), [0; 0]);
}

#[test]
fn of_a_connection_that_the_other_trace_does_not_show_nothing_is_lost() {
    for opened_by_other in [false, true] {
        let mut not_shown = with(5002, NOT_SHOWN, opened_by_other);
        // Of the last three nothing is acknowledged before the traces end.
        let until_ns = 540 * MS;
        not_shown
            .packets
            .retain(|packet| packet.at_ns < until_ns - 40 * MS);
        let scripts = [with(5001, SHOWN, false), not_shown];
        let [here, there] = traces(&scripts, is_shown);
        let (record, _) = analyse_both(&here, &there);
        assert_eq!(lost(&record), [0; 0]);
        let unseen = record.fates.iter();
        let unseen = unseen.filter(|fate| fate.arrival == Arrival::Unseen);
        assert!(unseen.count() >= 17);
        assert_eq!(record.connections[1].only_at, Some(Side::Sender));
        assert_eq!(record.connections[0].only_at, None);
    }
}

#[test]
fn an_attempt_to_reach_the_host_at_the_receivers_trace_that_it_does_not_show_was_lost() {
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
    assert_eq!(record.connections[1].passages[0].lost_packets, 2);
}

#[test]
fn what_was_acknowledged_when_the_traces_end_is_not_lost() {
    // The receiver's trace misses a message of the last second and its ACK, and the ACKs of those
    // behind it.
    let script = with(5001, SHOWN, false);
    let missed = |packet: &Packet| match packet.payload_len {
        0 => packet.at_ns >= 400 * MS,
        _ => packet.at_ns == 400 * MS,
    };
    let [here, there] = traces(&[script], |packet| !missed(packet));
    let (record, _) = analyse_both(&here, &there);
    assert_eq!(lost(&record), [0; 0]);
    let passage = record.only().passages[0];
    assert_eq!((passage.unseen_packets, passage.unseen_bytes), (1, 100));
    assert_eq!(passage.delivered_packets, 2 + 19);
    // What had arrived behind it was read, at a time that is not known.
    let never = |(_, range): &&(_, crate::Range)| {
        let readable = range.delivery.map(|delivery| delivery.readable);
        readable == Some(Readable::Never)
    };
    assert_eq!(record.ranges.iter().filter(never).count(), 0);
}
