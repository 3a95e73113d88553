//! Cross-check of the analyser's results against the path's counters, the hosts' devices, the
//! bundler and the receiver.

mod capture;
mod losses;
mod scenario;
mod tshark;

use std::collections::HashMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use pillion_lab::path::{self, Disorder, Loss, PathConfig};
use pillion_trace::DeliveryStats;
use pillion_trace::input::Input;
use pillion_trace::{Connection, Direction, DirectionCounts, Observer, Range, input, pair};

use crate::common::*;
use capture::CapturedSegment;
use losses::LossCounts;
use scenario::{MARKER_PORTS, Scenario, Traffic, run};

const THIN: Traffic = Traffic {
    bundling: None,
    streams: &["--itt", "20ms:4ms", "--size", "120", "--duration", "3s"],
    count: "20",
};
const BUNDLED: Traffic = Traffic {
    bundling: Some(&["--thin", "always", "--max-packets", "1"]),
    ..THIN
};

/// 20 ms each way, with losses in both directions.
fn path(disorder: Option<Disorder>) -> PathConfig {
    let direction = path::Direction {
        rate_bps: Some(10_000_000),
        queue_packets: 1000,
        loss: Loss::Uniform(0.04),
        disorder,
        ..path::Direction::delayed(Duration::from_millis(20))
    };
    PathConfig {
        forward: direction.clone(),
        backward: direction,
        seed: 1,
    }
}

fn disturbed_path() -> PathConfig {
    path(Some(Disorder {
        reorder: 0.02,
        duplicate: 0.02,
        late: Duration::from_millis(30),
    }))
}

#[test]
fn analyser_counts_match_path_counters() {
    needs_root!();
    thread::scope(|scope| {
        scope.spawn(|| compare(path(None), &THIN));
        scope.spawn(|| compare(path(None), &BUNDLED));
        scope.spawn(|| compare(disturbed_path(), &THIN));
        scope.spawn(|| compare(disturbed_path(), &BUNDLED));
    });
}

fn compare(path: PathConfig, traffic: &Traffic) {
    let scenario = run(&path, traffic);
    let totals = AnalyserTotals::of(&scenario);
    let directions = [&scenario.ledger.forward, &scenario.ledger.backward];
    for (analysed, path_counts) in totals.directions.iter().zip(directions) {
        assert_counts(analysed, path_counts);
        assert_eq!(
            path_counts.reordered.packets > 0,
            path.forward.disorder.is_some()
        );
    }
    assert_latencies(&scenario, &totals);
    if path.forward.disorder.is_none() {
        tshark::compare(&scenario.traces[0]);
    }
    if traffic.bundling.is_some() {
        assert_bundles(&scenario, &totals.directions[0]);
    }
}

fn assert_counts(analysed: &DirectionTotals, path_counts: &path::DirectionStats) {
    assert_eq!(analysed.packets, path_counts.received.packets);
    assert_eq!(analysed.wire_bytes, path_counts.received.bytes);
    assert_eq!(
        analysed.lost,
        path_counts.lost.packets + path_counts.queue_full.packets
    );
    assert!(analysed.lost > 0);
    assert_eq!(analysed.duplicated, path_counts.duplicated.packets);
    assert_eq!(
        analysed.delivered + analysed.duplicated,
        path_counts.delivered.packets
    );
    assert_eq!(analysed.unmatched, 0);
}

/// Compares with the bundler's counters and with the segments captured on the hosts' devices.
fn assert_bundles(scenario: &Scenario, analysed: &DirectionTotals) {
    let stats = scenario.stats.as_ref().expect("the bundler's statistics");
    assert_eq!(stats["outcomes"]["bundled"], analysed.bundled_packets);
    assert_eq!(
        stats["outcomes"]["retransmission"],
        analysed.retransmitted_packets
    );
    assert_eq!(stats["redundant_bytes"], analysed.bundled_bytes);
    assert_eq!(stats["new_bytes"], analysed.new_bytes);
    if scenario.ledger.forward.reordered.packets == 0 {
        let [sent, arrived] = &scenario.captured;
        let select_port = |all: &[CapturedSegment], port| -> Vec<CapturedSegment> {
            let is_of_port = |captured: &&CapturedSegment| captured.ports[0] == port;
            all.iter().filter(is_of_port).copied().collect()
        };
        let mut ports: Vec<u16> = sent.iter().map(|captured| captured.ports[0]).collect();
        ports.sort_unstable();
        ports.dedup();
        let mut losses = LossCounts::default();
        for port in ports {
            losses += LossCounts::of(&select_port(sent, port), &select_port(arrived, port));
        }
        assert_eq!(analysed.data_packets, losses.segments);
        assert_eq!(analysed.bundle_hits, losses.repaired);
    }
}

/// Compares latencies. A message is sent shortly after the write, and read shortly after it could
/// be.
fn assert_latencies(scenario: &Scenario, totals: &AnalyserTotals) {
    const SIZE: i64 = 120;
    let streams = scenario.received["streams"].as_array().expect("streams");
    let mut excess_ns = Vec::new();
    for line in scenario.records.lines() {
        let fields: Vec<&str> = line.split(',').collect();
        let [_, stream, sequence, _, _, latency_us] = fields[..] else {
            panic!("{line}");
        };
        let stream: u64 = stream.parse().expect("a number");
        let is_stream = |received: &&serde_json::Value| received["stream"] == stream;
        let peer = streams.iter().find(is_stream).expect("the stream")["peer"].as_str();
        let peer: std::net::SocketAddr = peer.expect("an address").parse().expect("an address");
        let end = 1 + SIZE * (sequence.parse::<i64>().expect("a number") + 1);
        let ranges = &totals.delivered[&peer.port()];
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

/// Analyser's results, summed over all streams.
#[derive(Default)]
pub struct AnalyserTotals {
    /// Totals of the originators' packets, then of the responders'.
    pub directions: [DirectionTotals; 2],
    /// By sender port: end positions of ranges, and nanoseconds from first transmission to in-order
    /// delivery.
    pub delivered: HashMap<u16, Vec<(i64, i64)>>,
}

/// Packet counts of one direction.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DirectionTotals {
    pub packets: u64,
    pub wire_bytes: u64,
    pub data_packets: u64,
    pub bundled_packets: u64,
    pub bundled_bytes: u64,
    pub retransmitted_packets: u64,
    pub new_bytes: u64,
    pub delivered: u64,
    pub lost: u64,
    pub lost_data: u64,
    pub duplicated: u64,
    pub unmatched: u64,
    pub bundle_hits: u64,
}

impl AnalyserTotals {
    /// Analyses both traces of a scenario.
    pub fn of(scenario: &Scenario) -> Self {
        let [sender, receiver] = &scenario.traces;
        let options = pair::PairOptions::default();
        pair::analyse(open(sender), open(receiver), &options, Self::default()).0
    }
}

/// Opens a trace file.
pub fn open(trace: &Path) -> Input {
    input::open(trace).expect("a trace")
}

/// True for a measured stream, false for a marker connection.
pub fn is_stream(connection: &Connection) -> bool {
    !MARKER_PORTS.contains(&connection.responder.port)
}

impl Observer for AnalyserTotals {
    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        let read_ns = range.delivery.and_then(|delivery| delivery.in_order_ns());
        if is_stream(connection) && direction == Direction::Forward {
            let took_ns = read_ns.zip(range.first_sent_ns());
            let (read_ns, sent_ns) = took_ns.expect("all was delivered");
            let delivered = self.delivered.entry(connection.originator.port);
            delivered.or_default().push((range.end, read_ns - sent_ns));
        }
    }

    fn finished(&mut self, connection: &Connection) {
        if !is_stream(connection) {
            return;
        }
        for direction in Direction::BOTH {
            let half = connection.half_connection(direction);
            let stats = half.delivery_stats().expect("two traces");
            self.directions[direction as usize].add(&half.counts, stats);
        }
    }
}

impl DirectionTotals {
    fn add(&mut self, counts: &DirectionCounts, stats: &DeliveryStats) {
        self.packets += counts.packets;
        self.wire_bytes += counts.wire_bytes;
        self.data_packets += counts.data_packets;
        self.bundled_packets += counts.bundled_packets;
        self.bundled_bytes += counts.bundled_bytes;
        self.retransmitted_packets += counts.retransmitted_packets;
        self.new_bytes += counts.new_bytes;
        self.delivered += stats.delivered_packets;
        self.lost += stats.lost_packets;
        self.lost_data += stats.lost_data_packets;
        // A copy directly after its packet looks like a packet that the capture shows twice.
        self.duplicated += stats.duplicated_packets + counts.repeated_packets;
        self.unmatched += stats.unknown_packets
            + stats.unmatched_packets
            + counts.stray_packets
            + counts.stray_acks;
        self.bundle_hits += stats.bundle_hits;
    }
}
