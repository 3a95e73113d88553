//! Counts and delivery times that the analyser reports for a scenario.

use std::collections::HashMap;
use std::path::Path;

use pillion_trace::input::{self, Input};
use pillion_trace::pair;
use pillion_trace::{Connection, Counts, Direction, Observer, Passage, Range};

use super::scene::{KNOCKS, Scene};

/// Analyser's results, summed over all streams.
#[derive(Default)]
pub struct Account {
    /// Totals of the originators' packets, then of the responders'.
    pub ways: [Sums; 2],
    /// By sender port: end positions of ranges, and nanoseconds from first transmission to in-order
    /// delivery.
    pub delivered: HashMap<u16, Vec<(i64, i64)>>,
}

/// Packet counts of one direction.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sums {
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
    pub doubled: u64,
    pub unclear: u64,
    pub bundle_hits: u64,
}

impl Account {
    /// Analyses both traces of a scenario.
    pub fn of(scene: &Scene) -> Self {
        let [here, there] = &scene.traces;
        let options = pair::Options::default();
        pair::analyse(open(here), open(there), &options, Self::default()).0
    }
}

/// Opens a trace file.
pub fn open(trace: &Path) -> Input {
    input::open(trace).expect("a trace")
}

/// True for a measured stream, false for a marker connection.
pub fn is_stream(connection: &Connection) -> bool {
    !KNOCKS.contains(&connection.responder.port)
}

impl Observer for Account {
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
            let passage = half.passage().expect("two traces");
            self.ways[direction as usize].add(&half.counts, passage);
        }
    }
}

impl Sums {
    fn add(&mut self, counts: &Counts, passage: &Passage) {
        self.packets += counts.packets;
        self.wire_bytes += counts.wire_bytes;
        self.data_packets += counts.data_packets;
        self.bundled_packets += counts.bundled_packets;
        self.bundled_bytes += counts.bundled_bytes;
        self.retransmitted_packets += counts.retransmitted_packets;
        self.new_bytes += counts.new_bytes;
        self.delivered += passage.delivered_packets;
        self.lost += passage.lost_packets;
        self.lost_data += passage.lost_data_packets;
        // A copy directly after its packet looks like a packet that the capture shows twice.
        self.doubled += passage.duplicated_packets + counts.repeated_packets;
        self.unclear += passage.unknown_packets
            + passage.unmatched_packets
            + counts.stray_packets
            + counts.stray_acks;
        self.bundle_hits += passage.bundle_hits;
    }
}
