//! Checks the analyser against the path's counters, the hosts' devices, the bundler and the
//! receiver.

use std::thread;
use std::time::Duration;

use pillion_lab::path::{Counts, Direction, Disorder, Loss, PathConfig};

use super::account::{Account, Sums};
use super::scene::{Scene, Traffic, play};
use super::truth::Truth;
use super::tshark;
use super::watch::Seen;
use crate::common::*;

const THIN: Traffic = Traffic {
    bundling: None,
    streams: &["--itt", "20:4", "--size", "120", "--duration", "3"],
    count: "20",
};
const BUNDLED: Traffic = Traffic {
    bundling: Some(&["--thin", "always", "--max-packets", "1"]),
    ..THIN
};

/// 20 ms each way, with losses in both directions.
fn path(disorder: Option<Disorder>) -> PathConfig {
    let direction = Direction {
        rate_bps: Some(10_000_000),
        queue_packets: 1000,
        loss: Loss::Uniform(0.04),
        disorder,
        ..Direction::delayed(Duration::from_millis(20))
    };
    PathConfig {
        forward: direction.clone(),
        backward: direction,
        seed: 1,
    }
}

fn disturbed() -> PathConfig {
    path(Some(Disorder {
        reorder: 0.02,
        duplicate: 0.02,
        late: Duration::from_millis(30),
    }))
}

#[test]
fn every_packet_s_fate_is_the_one_in_the_path_s_ledger() {
    needs_root!();
    thread::scope(|scope| {
        scope.spawn(|| compare(path(None), &THIN));
        scope.spawn(|| compare(path(None), &BUNDLED));
        scope.spawn(|| compare(disturbed(), &THIN));
        scope.spawn(|| compare(disturbed(), &BUNDLED));
    });
}

fn compare(path: PathConfig, traffic: &Traffic) {
    let scene = play(&path, traffic);
    let account = Account::of(&scene);
    let ways = [&scene.ledger.forward, &scene.ledger.backward];
    for (found, carried) in account.ways.iter().zip(ways) {
        assert_fates(found, carried);
        assert_eq!(
            carried.held_back.packets > 0,
            path.forward.disorder.is_some()
        );
    }
    assert_latencies(&scene, &account);
    if path.forward.disorder.is_none() {
        tshark::compare(&scene.traces[0]);
    }
    if traffic.bundling.is_some() {
        assert_bundles(&scene, &account.ways[0]);
    }
}

fn assert_fates(found: &Sums, carried: &Counts) {
    assert_eq!(found.packets, carried.received.packets);
    assert_eq!(found.wire_bytes, carried.received.bytes);
    assert_eq!(
        found.lost,
        carried.lost.packets + carried.queue_full.packets
    );
    assert!(found.lost > 0);
    assert_eq!(found.doubled, carried.duplicated.packets);
    assert_eq!(found.delivered + found.doubled, carried.delivered.packets);
    assert_eq!(found.unclear, 0);
}

/// Compares with the bundler's counters and with the segments captured on the hosts' devices.
fn assert_bundles(scene: &Scene, found: &Sums) {
    let account = scene.account.as_ref().expect("a bundler's account");
    assert_eq!(account["outcomes"]["bundled"], found.bundled_packets);
    assert_eq!(account["outcomes"]["old_data"], found.retransmitted_packets);
    assert_eq!(account["redundant_bytes"], found.bundled_bytes);
    assert_eq!(account["new_bytes"], found.new_bytes);
    if scene.ledger.forward.held_back.packets == 0 {
        let [sent, arrived] = &scene.seen;
        let of = |all: &[Seen], port| -> Vec<Seen> {
            let of_port = |seen: &&Seen| seen.ports[0] == port;
            all.iter().filter(of_port).copied().collect()
        };
        let mut ports: Vec<u16> = sent.iter().map(|seen| seen.ports[0]).collect();
        ports.sort_unstable();
        ports.dedup();
        let mut truth = Truth::default();
        for port in ports {
            truth += Truth::of(&of(sent, port), &of(arrived, port));
        }
        assert_eq!(found.data_packets, truth.segments);
        assert_eq!(found.bundle_hits, truth.repaired);
    }
}

/// Compares latencies. A message is sent shortly after the write, and read shortly after it could
/// be.
fn assert_latencies(scene: &Scene, account: &Account) {
    const SIZE: i64 = 120;
    let streams = scene.received["streams"].as_array().expect("streams");
    let mut excess_ns = Vec::new();
    for line in scene.records.lines() {
        let fields: Vec<&str> = line.split(',').collect();
        let [_, stream, sequence, _, _, latency_us] = fields[..] else {
            panic!("{line}");
        };
        let stream: u64 = stream.parse().expect("a number");
        let is_it = |received: &&serde_json::Value| received["stream"] == stream;
        let peer = streams.iter().find(is_it).expect("the stream")["peer"].as_str();
        let peer: std::net::SocketAddr = peer.expect("an address").parse().expect("an address");
        let end = 1 + SIZE * (sequence.parse::<i64>().expect("a number") + 1);
        let ranges = &account.delivered[&peer.port()];
        let index = ranges.partition_point(|&(range_end, _)| range_end < end);
        let recorded_ns = latency_us.parse::<f64>().expect("a latency") * 1e3;
        excess_ns.push(recorded_ns - ranges[index].1 as f64);
    }
    excess_ns.sort_unstable_by(f64::total_cmp);
    assert!(excess_ns[0] > -1e6, "{} ns", excess_ns[0]);
    // Most messages wait longer, because of a small window or a busy machine.
    let prompt_ns = excess_ns[excess_ns.len() / 100];
    assert!(prompt_ns < 5e6, "{prompt_ns} ns");
}
