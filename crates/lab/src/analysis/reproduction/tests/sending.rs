use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::*;
use crate::measure_ref::RATES;

const SERVER: ([u8; 4], u16) = ([198, 51, 100, 1], 80);
const EPOCH_S: f64 = 1_700_000_000.0;

/// A raw IP packet of 20 bytes of payload, from a client's port, as a trace keeps it.
fn packet(port: u16, seq: u32) -> Vec<u8> {
    let [port, server] = [port, SERVER.1].map(u16::to_be_bytes);
    let mut packet = vec![0x45, 0, 0, 60];
    packet.extend([port, [0x40, 0], [64, 6], [0; 2]].concat());
    packet.extend([[192, 0, 2, 1], SERVER.0].concat());
    packet.extend([port, server].concat());
    packet.extend([seq, 1].map(u32::to_be_bytes).concat());
    packet.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    packet
}

/// A trace of connections that each send once at the first and once at the second of these times, in
/// seconds.
fn trace(folder: &Path, name: &str, connections: &[(f64, f64)]) -> PathBuf {
    let mut packets: Vec<(f64, Vec<u8>)> = Vec::new();
    for (port, (from, until)) in (40_000..).zip(connections) {
        packets.extend([(*from, packet(port, 1)), (*until, packet(port, 21))]);
    }
    packets.sort_by(|one, other| one.0.total_cmp(&other.0));
    let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101];
    let mut bytes = header.map(u32::to_le_bytes).concat();
    for (at_s, packet) in packets {
        let microseconds = (at_s.fract() * 1e6).round() as u32;
        let record = [(EPOCH_S + at_s) as u32, microseconds, 40, 60];
        bytes.extend(record.map(u32::to_le_bytes).concat());
        bytes.extend(packet);
    }
    let file = folder.join(name);
    fs::write(&file, bytes).unwrap();
    file
}

#[test]
fn a_connection_was_dropped_by_the_time_in_which_streams_were_to_send() {
    let folder = tempfile::tempdir().unwrap();
    // They send from 1 s to 11 s; what is on the way then comes for a minute.
    let connections = [
        (1.0, 11.0),
        (1.0, 7.0),
        (1.5, 5.5),
        (9.0, 71.0),
        (2.0, 71.0),
    ];
    let [sender, receiver] = ["sender", "receiver"]
        .map(|name| trace(folder.path(), &format!("{name}.pcap"), &connections));
    let groups = [("thin".to_owned(), SocketAddr::from(SERVER))];
    let began_ns = (EPOCH_S + 1.0) as i64 * 1_000_000_000;
    let digest = Digest::read(&sender, &receiver, &groups, began_ns, 10.0).unwrap();
    let thin = &digest.groups["thin"];
    let parses = |name: &str| assert!(name.parse::<MeasureRef>().is_ok(), "{name}");
    thin.values
        .keys()
        .chain(thin.distributions.keys())
        .for_each(|name| parses(name));
    thin.streams
        .keys()
        .for_each(|name| parses(&format!("{name} of streams")));
    thin.slices
        .keys()
        .for_each(|name| parses(&format!("{name} of slices")));
    assert_eq!(thin.slices.len(), RATES.len());
    assert_eq!(thin.named("connections"), Some(5.0));
    assert_eq!(thin.named("dropped"), Some(2.0));
}
