//! Invariants for arbitrary packets.

use std::collections::HashMap;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::measure::catalogue::distributions;
use crate::measure::{Measures, Meter, MeterOptions, Results};
use crate::pair;
use crate::script::{Record, Script};
use crate::{
    Analysis, Connection, Direction, DirectionCounts, Flags, Observer, Packet, Period, Range,
    TimePoint,
};

/// An arbitrary packet; most are close in time and sequence number.
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
struct RangeOrder {
    record: Record,
    ends: HashMap<(u64, Direction), i64>,
}

impl Observer for RangeOrder {
    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        assert!(range.start < range.end);
        let end = self
            .ends
            .entry((connection.number, direction))
            .or_insert(i64::MIN);
        assert!(*end <= range.start, "{range:?} begins before {end}");
        *end = range.end;
    }

    fn finished(&mut self, connection: &Connection) {
        self.record.finished(connection);
    }
}

#[test]
fn every_packet_of_random_traces_has_one_disposition() {
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
        let (order, _) = pair::analyse(
            here,
            there,
            &pair::PairOptions::default(),
            RangeOrder::default(),
        );
        let (mut dispositions, mut arrived) = (0, 0);
        for connection in &order.record.connections {
            for (counts, delivery_stats) in [connection.forward, connection.backward]
                .iter()
                .zip(&connection.delivery_stats)
            {
                let ends = delivery_stats.delivered_packets + delivery_stats.lost_packets;
                let ends = ends + delivery_stats.unknown_packets + delivery_stats.unseen_packets;
                assert_eq!(ends + counts.stray_packets, counts.packets, "seed {seed}");
                dispositions += counts.packets + counts.repeated_packets + counts.copied_packets;
                dispositions += delivery_stats.delivered_copies;
                arrived += delivery_stats.delivered_packets + delivery_stats.duplicated_packets;
                arrived += delivery_stats.unmatched_packets;
            }
        }
        assert_eq!(dispositions + arrived, total, "seed {seed}");
    }
}

#[test]
fn every_byte_of_random_packets_has_one_class() {
    for seed in 0..300 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut analysis = Analysis::new(RangeOrder::default());
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
                let kinds = kinds + counts.copied_bytes;
                assert_eq!(kinds, counts.payload_bytes, "seed {seed}");
                let kinds =
                    counts.new_packets + counts.bundled_packets + counts.retransmitted_packets;
                assert_eq!(kinds, counts.data_packets, "seed {seed}");
                counted += counts.packets + counts.repeated_packets + counts.copied_packets;
            }
        }
        assert_eq!(counted, packets, "seed {seed}");
    }
}

fn of_any_two_traces(seed: u64) -> Results {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut traces = [Vec::new(), Vec::new()];
    for number in 0..300 {
        let mut packet = any_packet(&mut random, number);
        traces[0].push(packet);
        if random.random_ratio(3, 4) {
            let later_ns = random.random_range(0..50_000_000);
            packet.at_ns = packet.at_ns.saturating_add(later_ns);
            traces[1].push(packet);
        }
    }
    let options = MeterOptions {
        slice_ns: [1_000_000, 1_000_000_000, i64::MAX][random.random_range(0..3)],
        ..MeterOptions::default()
    };
    let pair = pair::PairOptions {
        same_clock: random.random(),
        period: Period {
            from: [
                None,
                Some(TimePoint::After(random.random_range(0..300_000_000))),
            ][random.random_range(0..2)],
            until: None,
        },
        ..pair::PairOptions::default()
    };
    let [here, there] = traces.map(Vec::into_iter);
    let (meter, summary) = pair::analyse(here, there, &pair, Meter::new(options));
    meter.finish_pair(&summary.clock)
}

fn holds_together(measures: &Measures) {
    let counts = &measures.sent.counts;
    assert_eq!(measures.spacing.payload.len(), counts.data_packets);
    assert_eq!(measures.spacing.in_flight.len(), counts.data_packets);
    let slices = measures.slices.iter();
    let in_slices: u64 = slices.map(|(_, slice)| u64::from(slice.data_packets)).sum();
    assert_eq!(in_slices, counts.data_packets);
    let retransmissions: u64 = measures.sent.nth_retransmissions.iter().sum();
    assert!(retransmissions <= counts.retransmitted_packets);
    if let Some(loss) = &measures.loss {
        let lost = loss.lost_new_packets + loss.lost_bundled_packets;
        let lost = lost + loss.lost_retransmitted_packets;
        assert_eq!(lost, loss.delivery_stats.lost_data_packets);
        assert_eq!(
            loss.lost_new_bytes + loss.lost_old_bytes,
            loss.delivery_stats.lost_bytes
        );
        let runs = loss.delivery_stats.loss_runs.iter().sum::<u64>();
        assert!(runs <= loss.delivery_stats.lost_packets);
    }
    for measure in distributions() {
        let distribution = (measure.of)(measures);
        let steps = distribution.steps();
        let total: u64 = steps.iter().map(|(_, times)| times).sum();
        assert_eq!(total, distribution.len(), "{}", measure.name);
        assert_eq!(steps.first().map(|step| step.0), distribution.min());
        assert_eq!(distribution.quantile(1.0), distribution.max());
    }
}

#[test]
fn totals_of_random_traces_equal_sum_of_connections() {
    for seed in 0..100 {
        let results = of_any_two_traces(seed);
        let (mut main, mut back) = (DirectionCounts::default(), DirectionCounts::default());
        for connection in &results.connections {
            holds_together(&connection.main);
            holds_together(&connection.back);
            main += connection.main.sent.counts;
            back += connection.back.sent.counts;
        }
        holds_together(&results.all.main);
        holds_together(&results.all.back);
        assert_eq!(results.all.main.sent.counts, main, "seed {seed}");
        assert_eq!(results.all.back.sent.counts, back, "seed {seed}");
        assert!(main.new_bytes >= back.new_bytes);
        let connections = results.connections.len() as u64;
        assert_eq!(results.all.handshakes.connections, connections);
        assert!(serde_json::to_value(&results).is_ok());
    }
}
