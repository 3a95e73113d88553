//! What must hold for any sequence of packets.

use std::collections::HashMap;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::pair::{self, Options};
use crate::script::{Record, Script};
use crate::{Analysis, Connection, Direction, Flags, Observer, Packet, Range};

/// A packet that may mean anything; most are near each other in time and sequence.
pub(crate) fn any_packet(random: &mut Pcg64Mcg, number: u64) -> Packet {
    let direction = Direction::BOTH[random.random_range(0..2)];
    let mut script = Script::new();
    let len = match random.random_range(0..20) {
        0 => random.random(),
        1..8 => 0,
        _ => random.random_range(0..5),
    };
    let near = |random: &mut Pcg64Mcg| match random.random_range(0..200) {
        0 => random.random(),
        1 => random.random_range(0..3u32) << 30,
        _ => random.random_range(0..30u32).wrapping_sub(5),
    };
    let mut packet = *script.packet(direction, 0, len);
    packet.number = number;
    packet.at_ns = match random.random_range(0..100) {
        0 => random.random(),
        _ => number as i64 * 1_000_000 + random.random_range(-5_000_000..5_000_000),
    };
    packet.seq = near(random);
    packet.ack = random.random_ratio(9, 10).then(|| near(random));
    packet.flags = Flags {
        syn: random.random_ratio(1, 50),
        fin: random.random_ratio(1, 50),
        rst: random.random_ratio(1, 100),
        psh: random.random(),
    };
    packet.window = random.random_range(0..3);
    packet.ip_id = random
        .random_ratio(9, 10)
        .then(|| random.random_range(0..50));
    for _ in 0..random.random_range(0..4) {
        packet.sack.push(near(random), near(random));
    }
    packet
}

#[derive(Default)]
struct Order {
    record: Record,
    ends: HashMap<(u64, Direction), i64>,
}

impl Observer for Order {
    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        assert!(range.begin < range.end);
        let end = self
            .ends
            .entry((connection.number, direction))
            .or_insert(i64::MIN);
        assert!(*end <= range.begin, "{range:?} begins before {end}");
        *end = range.end;
    }

    fn finished(&mut self, connection: &Connection) {
        self.record.finished(connection);
    }
}

#[test]
fn whatever_two_traces_hold_every_packet_has_one_fate() {
    for seed in 0..200 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut traces = [Vec::new(), Vec::new()];
        for number in 0..300 {
            let mut packet = any_packet(&mut random, number);
            match random.random_range(0..4) {
                0 => traces[0].push(packet),
                1 => traces[1].push(packet),
                _ => {
                    traces[0].push(packet);
                    packet.at_ns = packet
                        .at_ns
                        .saturating_add(random.random_range(0..50_000_000));
                    traces[1].push(packet);
                }
            }
        }
        let total = traces.iter().map(Vec::len).sum::<usize>() as u64;
        let [here, there] = traces.map(Vec::into_iter);
        let (order, _) = pair::analyse(here, there, &Options::default(), Order::default());
        let (mut fates, mut arrived) = (0, 0);
        for connection in &order.record.connections {
            for (counts, passage) in [connection.forward, connection.backward]
                .iter()
                .zip(&connection.passages)
            {
                let ends = passage.delivered_packets + passage.lost_packets;
                let ends = ends + passage.unknown_packets + passage.unseen_packets;
                assert_eq!(ends + counts.stray_packets, counts.packets, "seed {seed}");
                fates += counts.packets + counts.repeated_packets;
                arrived += passage.delivered_packets + passage.duplicated_packets;
                arrived += passage.unmatched_packets;
            }
        }
        assert_eq!(fates + arrived, total, "seed {seed}");
    }
}

#[test]
fn every_byte_is_new_bundled_or_retransmitted_whatever_comes() {
    for seed in 0..300 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut analysis = Analysis::new(Order::default());
        let mut packets = 0;
        for number in 0..400 {
            analysis.packet(&any_packet(&mut random, number));
            packets += 1;
        }
        let order = analysis.finish();
        let mut counted = 0;
        for connection in &order.record.connections {
            for counts in [connection.forward, connection.backward] {
                let kinds = counts.new_bytes + counts.bundled_bytes + counts.retransmitted_bytes;
                assert_eq!(kinds, counts.payload_bytes, "seed {seed}");
                let kinds =
                    counts.new_packets + counts.bundled_packets + counts.retransmitted_packets;
                assert_eq!(kinds, counts.data_packets, "seed {seed}");
                counted += counts.packets + counts.repeated_packets;
            }
        }
        assert_eq!(counted, packets, "seed {seed}");
    }
}
