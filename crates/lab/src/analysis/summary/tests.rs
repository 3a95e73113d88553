use std::net::SocketAddr;

use pillion_trace::measure::{Meter, Options, Results};
use pillion_trace::{Flags, Packet, SackBlocks, pair};

use super::*;

const MS: i64 = 1_000_000;

/// Of a client, messages to these servers, each acknowledged 40 ms later.
fn messages(servers: &[&str]) -> Vec<Packet> {
    let mut packets = Vec::new();
    for (stream, server) in (0..).zip(servers) {
        let client: SocketAddr = format!("192.0.2.1:{}", 40_000 + stream).parse().unwrap();
        let server: SocketAddr = server.parse().unwrap();
        for message in 0..20_u32 {
            let at_ns = i64::from(message) * 100 * MS;
            let data = Packet {
                number: 0,
                at_ns,
                interface: 0,
                from: client.into(),
                to: server.into(),
                frame_len: 166,
                header_len: 52,
                payload_len: 100,
                seq: (stream + 1) * 100_000 + message * 100,
                ack: Some(1),
                flags: Flags::default(),
                window: 500,
                ip_id: None,
                timestamps: None,
                sack: SackBlocks::default(),
                mss: None,
                window_scale: None,
            };
            let ack = Packet {
                at_ns: at_ns + 40 * MS,
                from: data.to,
                to: data.from,
                frame_len: 66,
                payload_len: 0,
                seq: 1,
                ack: Some(data.seq + 100),
                ..data
            };
            packets.extend([data, ack]);
        }
    }
    packets
}

/// The client's trace of these servers' connections and that of the others'.
fn of_both(here: &[&str], there: &[&str]) -> Results {
    let [mut here, mut there] = [here, there].map(messages);
    for packet in &mut there {
        packet.at_ns += if packet.payload_len > 0 { 20 } else { -20 } * MS;
    }
    for packets in [&mut here, &mut there] {
        packets.sort_by_key(|packet| packet.at_ns);
        for (number, packet) in (1..).zip(packets) {
            packet.number = number;
        }
    }
    let meter = Meter::new(Options::default());
    let options = pair::Options::default();
    let (meter, finding) = pair::analyse(here.into_iter(), there.into_iter(), &options, meter);
    meter.finish_pair(&finding.clock)
}

#[test]
fn a_note_says_how_many_connections_one_trace_shows_alone() {
    let (shown, others) = (["198.51.100.1:80"], ["203.0.113.1:80", "203.0.113.2:80"]);
    let all = [shown[0], others[0], others[1]];
    for (here, there, expected) in [
        (
            &all[..],
            &shown[..],
            Some("2 connections are in the sender's trace alone"),
        ),
        (
            &all,
            &all[..2],
            Some("1 connection is in the sender's trace alone"),
        ),
        (
            &all[..2],
            &all,
            Some("1 connection is in the receiver's trace alone"),
        ),
        (&all, &all, None),
    ] {
        let results = of_both(here, there);
        let summary = Summary {
            results: &results,
            percentiles: &[50.0],
            traces: &[],
        };
        let notes = summary.notes();
        let alone: Vec<_> = notes.iter().filter(|note| note.contains("alone")).collect();
        assert_eq!(alone.len(), usize::from(expected.is_some()), "{notes:?}");
        assert!(
            alone.iter().all(|note| note.contains(expected.unwrap())),
            "{notes:?}"
        );
    }
}
