use super::*;

#[test]
fn delivery_latency_at_transport_and_application_layer() {
    let script = one_loss();
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4]);
    let results = measure_both(&here, &there, MeterOptions::default());
    let delay = &results.connections[0].main.delay;
    assert_eq!(ms(&delay.transport), [(75, 3), (375, 1)]);
    assert_eq!(
        ms(&delay.application),
        [(285, 1), (315, 1), (345, 1), (375, 1)]
    );
    assert_eq!(ms(&delay.one_way), [(75, 4)]);
    assert_eq!(ms(&delay.variation), [(0, 4)]);
    let clock = results.clock.unwrap();
    assert!(
        (clock.ahead_ms.unwrap() - (AHEAD / MS) as f64).abs() < 1e-3,
        "{clock:?}"
    );
    assert!((clock.round_trip_ms.unwrap() - 150.0).abs() < 1e-3);
}

#[test]
fn one_clock_shows_asymmetric_path() {
    let script = one_loss();
    let (here, there) = carry(&script, ONE_WAY, 25 * MS, &[4]);
    let own = measure_both(&here, &there, MeterOptions::default());
    let same = measure_by_one_clock(&here, &there);
    assert_eq!(ms(&own.all.main.delay.one_way), [(75, 4)]);
    assert_eq!(ms(&same.all.main.delay.one_way), [(100, 4)]);
    assert_eq!(ms(&same.all.main.delay.transport), [(100, 3), (400, 1)]);
}

#[test]
fn one_clock_has_no_offset_for_any_delays() {
    let script = one_loss();
    let (here, there) = carry(&script, ONE_WAY, 25 * MS, &[4]);
    let clock = measure_by_one_clock(&here, &there).clock.unwrap();
    assert!(clock.same);
    assert_eq!((clock.ahead_ms, clock.drift_ppm), (Some(0.0), Some(0.0)));
    assert!((clock.round_trip_ms.unwrap() - 150.0).abs() < 1e-6);
}

#[test]
fn arrival_before_departure_is_counted_not_measured() {
    let script = one_loss();
    let (here, there) = carry(&script, ONE_WAY, -100 * MS, &[4]);
    let results = measure_by_one_clock(&here, &there);
    let delay = &results.all.main.delay;
    assert!(delay.one_way.is_empty() && delay.variation.len() == 4);
    let unknown_delays = delay.unknown_delays;
    assert_eq!(unknown_delays.negative_delays, 4);
    // The retransmitted range took longer than the clocks differ.
    assert_eq!(
        (unknown_delays.negative_latencies, delay.transport.len()),
        (3, 1)
    );
}

#[test]
fn one_clock_measures_all_of_many_packets() {
    let mut script = established();
    for message in 0..40_000 {
        script
            .at(200 + message * 10)
            .data(message * 10 + 1, message * 10 + 11);
    }
    script.at(401_000).ack(400_001).at(402_000).close(400_001);
    let (here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    for packet in &mut there {
        packet.at_ns += packet.number as i64 % 4 * MS;
    }
    let results = measure_by_one_clock(&here, &there);
    let delay = &results.all.main.delay;
    assert_eq!(
        (delay.one_way.len(), delay.one_way.sample()),
        (40_000, None)
    );
    for (share, ms) in [(0.25, 0), (0.5, 1), (0.75, 2), (1.0, 3)] {
        let found = [&delay.variation, &delay.application].map(|it| it.quantile(share).unwrap());
        let expected = [ms * MS, ms * MS + ONE_WAY].map(i64::unsigned_abs);
        for (found, expected) in found.into_iter().zip(expected) {
            assert!(
                found.abs_diff(expected) <= expected / 1000,
                "{found}, {expected}"
            );
        }
    }
}

#[test]
fn queueing_shows_as_delay_variation() {
    let mut script = established();
    for message in 0..100 {
        script
            .at(200 + message * 30)
            .data(message * 10 + 1, message * 10 + 11);
    }
    script.at(3500).ack(1001).at(3600).close(1001);
    let (here, mut there) = carry(&script, ONE_WAY, AHEAD, &[]);
    let data = there.iter_mut().filter(|packet| packet.payload_len > 0);
    for packet in data.skip(50).take(10) {
        packet.at_ns += 20 * MS;
    }
    let results = measure_both(&here, &there, MeterOptions::default());
    let delay = &results.all.main.delay;
    assert_eq!(ms(&delay.variation), [(0, 90), (20, 10)]);
    assert_eq!(ms(&delay.one_way), [(75, 90), (95, 10)]);
}

#[test]
fn range_with_unseen_first_copy_has_no_latency() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(350).data(1, 101).data(101, 201);
    script.at(380).ack(201).at(700).close(201);
    let (mut here, there) = carry(&script, ONE_WAY, AHEAD, &[]);
    // The first of these packets, and everything before the start of a later trace.
    for misses in [4..5, 0..5] {
        here.retain(|packet| !misses.contains(&packet.number));
        let delay = &measure_both(&here, &there, MeterOptions::default())
            .all
            .main
            .delay;
        assert_eq!(ms(&delay.transport), [(75, 1)], "{misses:?}");
        assert_eq!(delay.unknown_delays.negative_latencies, 1, "{misses:?}");
    }
}

#[test]
fn growing_queues_are_not_drift_of_one_clock() {
    let mut script = established();
    for message in 0..100 {
        let start = message * 10 + 1;
        script.at(200 + message * 200).data(start, start + 10);
        script.at(350 + message * 200).ack(start + 10);
    }
    script.packets.sort_by_key(|packet| packet.at_ns);
    let (mut here, mut there) = carry(&script, ONE_WAY, 0, &[]);
    let data = there.iter_mut().filter(|packet| packet.payload_len > 0);
    let acks = here
        .iter_mut()
        .filter(|packet| packet.number > 3 && packet.payload_len == 0);
    for (number, (packet, ack)) in (0..).zip(data.zip(acks)) {
        packet.at_ns += number * MS / 10;
        ack.at_ns -= number * MS / 10;
    }
    let results = measure_by_one_clock(&here, &there);
    let clock = results.clock.unwrap();
    assert_eq!(clock.hull_there.unwrap().slope_ppm, 0.0);
    assert_eq!(clock.drift_ppm, Some(0.0));
    let variation = &results.all.main.delay.variation;
    assert_eq!(
        (variation.min(), variation.max()),
        (Some(0), Some(9_900_000))
    );
}

/// The traces at both ends of two connections with a message each 30 ms. The second has a path 25
/// ms longer in each direction, and its messages queue for `queue_ms`. The receiver's clock has
/// this offset and drift.
fn over_two_paths(queue_ms: i64, ahead_ns: i64, ppm: i64) -> [Vec<Packet>; 2] {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for (port, one_way_ms, queue_ms) in [(5001_u16, 75, 0), (5002, 100, queue_ms)] {
        let mut script = Script::new();
        script.client = endpoint(&format!("192.0.2.1:{port}"));
        script.initial = [1000 * u32::from(port), 77_000 * u32::from(port)];
        script.syn();
        script.at(2 * one_way_ms).syn_ack();
        script.packet(Forward, 1, 0);
        for message in 0..1000 {
            let (at, start) = (500 + message * 30, message * 10 + 1);
            script.at(at).data(start, start + 10);
            script.at(at + queue_ms + 2 * one_way_ms).ack(start + 10);
        }
        script.packets.sort_by_key(|packet| packet.at_ns);
        let (one, mut other) = carry(&script, one_way_ms * MS, 0, &[]);
        for packet in other.iter_mut().filter(|packet| packet.payload_len > 0) {
            packet.at_ns += queue_ms * MS;
        }
        here.extend(one);
        there.extend(other);
    }
    for packet in &mut there {
        packet.at_ns += ahead_ns + packet.at_ns * ppm / 1_000_000;
    }
    for packets in [&mut here, &mut there] {
        packets.sort_by_key(|packet| packet.at_ns);
    }
    [here, there]
}

#[test]
fn longer_path_is_not_queueing_delay() {
    for (ahead_ns, ppm, same_clock) in [(0, 0, true), (AHEAD, 0, false), (AHEAD, 100, false)] {
        let [here, there] = over_two_paths(0, ahead_ns, ppm);
        let pair = pair::PairOptions {
            same_clock,
            ..pair::PairOptions::default()
        };
        let results = measure_pair(&here, &there, &pair, MeterOptions::default());
        let [short, long] = [0, 1].map(|index| &results.connections[index].main.delay);
        let all = &results.all.main.delay;
        for (delay, packets) in [(short, 1000), (long, 1000), (all, 2000)] {
            assert_eq!(delay.variation.len(), packets);
            let most_ns = delay.variation.max().unwrap();
            assert!(most_ns < 50_000, "{most_ns} ns, {ppm} ppm, {same_clock}");
        }
        for (delay, expected_ns) in [(short, 75_000_000), (long, 100_000_000)] {
            let one_way_ns = delay.one_way.quantile(0.5).unwrap();
            assert!(one_way_ns.abs_diff(expected_ns) < 50_000, "{one_way_ns} ns");
        }
    }
}

#[test]
fn constant_queue_shows_above_handshake_delay() {
    let [here, there] = over_two_paths(20, AHEAD, 0);
    let results = measure_both(&here, &there, MeterOptions::default());
    let [short, long] = [0, 1].map(|index| &results.connections[index].main.delay);
    for (variation, expected) in [(&short.variation, (0, 1000)), (&long.variation, (20, 1000))] {
        assert_eq!(ms(variation), [expected]);
    }
    let all = &results.all.main.delay.variation;
    assert_eq!(ms(all), [(0, 1000), (20, 1000)]);
}

#[test]
fn loss_is_counted_by_packets_bytes_ranges_and_class() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(260).data(101, 301).at(290).data(301, 401);
    script.at(380).ack(1).at(410).ack(1);
    script.at(500).data(1, 101).data(201, 301);
    script.at(650).ack(401).at(700).close(401);
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4, 6]);
    let results = measure_both(&here, &there, MeterOptions::default());
    let loss = results.all.main.loss.as_ref().unwrap();
    assert_eq!(
        (loss.data_packets, loss.delivery_stats.lost_data_packets),
        (6, 2)
    );
    assert_eq!(
        (loss.data_bytes, loss.delivery_stats.lost_bytes),
        (700, 300)
    );
    assert_eq!(loss.lost_data_packets_share, Some(1.0 / 3.0));
    assert_eq!(loss.lost_bytes_share, Some(3.0 / 7.0));
    assert_eq!((loss.lost_new_bytes, loss.lost_old_bytes), (200, 100));
    assert_eq!((loss.lost_new_packets, loss.lost_bundled_packets), (1, 1));
    assert_eq!((loss.delivered_ranges, loss.lost_ranges), (4, 2));
    assert_eq!(loss.ranges_repaired_by_retransmission, 2);
    assert_eq!(loss.delivery_stats.loss_runs[..2], [2, 0]);
}

#[test]
fn lost_nth_retransmissions_are_counted_by_n() {
    let mut script = established();
    for at in [200, 500, 1100, 2300] {
        script.at(at).data(1, 101);
    }
    script.at(2450).ack(101).at(2500).close(101);
    let (here, there) = carry(&script, ONE_WAY, 0, &[4, 5, 6]);
    let results = measure_both(&here, &there, MeterOptions::default());
    let main = &results.all.main;
    let loss = main.loss.as_ref().unwrap();
    assert_eq!(main.sent.nth_retransmissions[..4], [1, 1, 1, 0]);
    assert_eq!(loss.lost_nth_retransmissions[..4], [1, 1, 0, 0]);
    assert_eq!(loss.lost_retransmitted_packets, 2);
    assert_eq!(
        (
            loss.delivery_stats.longest_loss_run,
            loss.delivery_stats.loss_runs[2]
        ),
        (3, 1)
    );
}

/// "Connections where no data packets were received" (thesis, section 4.1.1).
#[test]
fn connection_with_all_data_lost_is_without_data() {
    let mut script = established();
    script.at(200).data(1, 101).at(500).data(1, 101);
    for (lost, without_data) in [(&[4, 5][..], 1), (&[4], 0)] {
        let (here, there) = carry(&script, ONE_WAY, 0, lost);
        let results = measure_both(&here, &there, MeterOptions::default());
        assert_eq!(results.all.handshakes.without_data, without_data);
    }
}

#[test]
fn repairing_bundles_are_hits() {
    let script = repaired_by_a_bundle();
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4]);
    let results = measure_both(&here, &there, MeterOptions::default());
    let loss = results.all.main.loss.as_ref().unwrap();
    assert_eq!(
        (
            loss.delivery_stats.bundle_hits,
            loss.delivery_stats.bundle_misses
        ),
        (1, 1)
    );
    assert_eq!(
        (
            loss.delivery_stats.repaired_bytes,
            loss.delivery_stats.needless_bytes
        ),
        (100, 100)
    );
    assert_eq!(loss.bundle_hit_share, Some(0.5));
    assert_eq!((loss.lost_ranges, loss.ranges_repaired_by_bundle), (1, 1));
}

/// Joins packets, as a receiver's device or kernel does: those with these numbers become one, with
/// the time of the last.
fn join(there: &mut Vec<Packet>, numbers: &[u64]) {
    let is_one = |packet: &Packet| numbers.contains(&packet.number);
    let mut joined = *there.iter().find(|packet| is_one(packet)).unwrap();
    let parts = there.iter().filter(|packet| is_one(packet));
    joined.payload_len = parts.clone().map(|packet| packet.payload_len).sum();
    joined.at_ns = parts.map(|packet| packet.at_ns).max().unwrap();
    there.retain(|packet| !is_one(packet));
    there.push(joined);
    there.sort_by_key(|packet| packet.at_ns);
}

#[test]
fn coalesced_segments_are_not_lost() {
    let mut script = established();
    for number in 0..6 {
        let start = number * 1460 + 1;
        script.at(200 + number).data(start, start + 1460);
    }
    // Sends the third again, which had arrived, and the fourth, which had not.
    script.at(500).data(2921, 4381).at(510).data(4381, 5841);
    script.at(700).ack(8761).at(800).close(8761);
    let (here, mut there) = carry(&script, ONE_WAY, AHEAD, &[7]);
    join(&mut there, &[5, 6]);
    join(&mut there, &[8, 9]);
    let results = measure_both(&here, &there, MeterOptions::default());
    let loss = results.all.main.loss.as_ref().unwrap();
    // It is unknown which copy of the third arrived first.
    assert_eq!(loss.unattributed_ranges, 1);
    assert_eq!((loss.delivered_ranges, loss.lost_ranges), (5, 1));
    assert_eq!(loss.lost_ranges_share, Some(0.2));
    assert_eq!(loss.ranges_repaired_by_retransmission, 1);
}

#[test]
fn small_or_unknown_coalesced_segments_are_not_lost() {
    for (size, with_handshake) in [(1460, false), (100, true), (100, false)] {
        let mut script = established();
        for number in 0..6 {
            let start = number * size + 1;
            script.at(200 + number).data(start, start + size);
        }
        script.at(700).ack(6 * size + 1).at(800).close(6 * size + 1);
        let (mut here, mut there) = carry(&script, ONE_WAY, AHEAD, &[]);
        for numbers in [[4, 5], [6, 7], [8, 9]] {
            join(&mut there, &numbers);
        }
        if !with_handshake {
            for trace in [&mut here, &mut there] {
                trace.retain(|packet| packet.number > 3);
            }
        }
        let results = measure_both(&here, &there, MeterOptions::default());
        let loss = results.all.main.loss.as_ref().unwrap();
        let known = (
            loss.delivery_stats.lost_data_packets,
            loss.unknown_data_packets,
        );
        assert_eq!(known, (0, 6), "{size} {with_handshake}");
        assert_eq!((loss.delivered_ranges, loss.lost_ranges), (6, 0));
    }
}
