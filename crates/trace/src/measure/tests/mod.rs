mod delay;
mod whole;

use super::{Distribution, Group, Meter, MeterOptions, Results, jain_index, write_tables};
use crate::Direction::{Backward, Forward};
use crate::packet::Packet;
use crate::script::{
    MS, NOT_SHOWN, SHOWN, Script, carry, endpoint, established, is_shown, one_message,
    repaired_by_a_bundle, traces, with,
};
use crate::{Analysis, ConnectionOutcome, Period, Side, TimePoint, pair};

const ONE_WAY: i64 = 75 * MS;
const AHEAD: i64 = 3_600_000 * MS;

fn measure(script: &Script, options: MeterOptions) -> Results {
    let mut analysis = Analysis::new(Meter::new(options));
    for packet in &script.packets {
        analysis.packet(packet);
    }
    analysis.finish().finish()
}

fn measure_both(here: &[Packet], there: &[Packet], options: MeterOptions) -> Results {
    measure_pair(here, there, &pair::PairOptions::default(), options)
}

fn measure_by_one_clock(here: &[Packet], there: &[Packet]) -> Results {
    let pair = pair::PairOptions {
        same_clock: true,
        ..pair::PairOptions::default()
    };
    measure_pair(here, there, &pair, MeterOptions::default())
}

fn measure_pair(
    here: &[Packet],
    there: &[Packet],
    pair: &pair::PairOptions,
    options: MeterOptions,
) -> Results {
    let (here, there) = (here.iter().copied(), there.iter().copied());
    let (meter, summary) = pair::analyse(here, there, pair, Meter::new(options));
    meter.finish_pair(&summary.clock)
}

/// Packets 1 to 3 are the handshake, complete at 150 ms.
fn ms(distribution: &Distribution) -> Vec<(u64, u64)> {
    let steps = distribution.steps().into_iter();
    steps
        .map(|(ns, times)| (ns / MS.unsigned_abs(), times))
        .collect()
}

/// Four messages, each 30 ms. The first is lost, and the bundle in the third does not include it.
/// It is retransmitted at 500 ms.
fn one_loss() -> Script {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(260).data(101, 301).at(290).data(301, 401);
    script.at(380).ack(1).at(410).ack(1);
    script
        .at(500)
        .data(1, 101)
        .at(650)
        .ack(401)
        .at(700)
        .close(401);
    script
}

#[test]
fn sent_and_redundant_bytes_are_counted() {
    let results = measure(&one_loss(), MeterOptions::default());
    let sent = &results.all.main.sent;
    assert_eq!(
        (sent.counts.data_packets, sent.counts.payload_bytes),
        (5, 600)
    );
    assert_eq!(
        (sent.counts.bundled_bytes, sent.counts.retransmitted_bytes),
        (100, 100)
    );
    assert_eq!(sent.redundant_share, Some(2.0 / 6.0));
    assert_eq!(sent.bundled_share, Some(1.0 / 6.0));
    assert_eq!(sent.estimated_loss_share, Some(1.0 / 5.0));
    assert_eq!(sent.nth_retransmissions[..2], [1, 0]);
    assert_eq!(sent.duplicate_acks_received, 2);
    assert!(results.all.main.loss.is_none());
    assert!(results.all.main.head_of_line.wait.is_empty());
}

#[test]
fn packets_in_flight_of_bundles_are_separate() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(260).data(101, 301).at(290).data(301, 401);
    script.at(400).ack(401).at(500).close(401);
    let results = measure(&script, MeterOptions::default());
    let spacing = &results.all.main.spacing;
    assert_eq!(
        (spacing.in_flight.len(), spacing.in_flight.max()),
        (4, Some(3))
    );
    let bundles = &spacing.in_flight_of_bundles;
    assert_eq!((bundles.len(), bundles.max()), (1, Some(2)));
}

#[test]
fn ack_latency_is_first_transmission_to_covering_ack() {
    let results = measure(&one_loss(), MeterOptions::default());
    let main = &results.connections[0].main;
    assert_eq!(
        ms(&main.latency.ack_latency),
        [(360, 1), (390, 1), (420, 1), (450, 1)]
    );
    // Its only new ACK covers a retransmission.
    assert!(main.latency.rtt.is_empty());
}

#[test]
fn ack_latency_is_split_by_retransmission_count() {
    let mut script = established();
    script.at(200).data(1, 101).at(300).data(101, 201);
    script.at(600).data(1, 101).at(1000).data(1, 101);
    script.at(1100).data(1, 101).at(1200).data(101, 201);
    script.at(1400).ack(201).at(1500).close(201);
    let results = measure(&script, MeterOptions::default());
    let [once, twice, thrice] = &results.all.main.latency.ack_latency_retransmitted;
    assert_eq!(ms(once), [(1100, 1)]);
    assert!(twice.is_empty());
    assert_eq!(ms(thrice), [(1200, 1)]);
}

#[test]
fn spacing_covers_only_packets_with_payload() {
    let script = one_loss();
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4]);
    let results = measure_both(&here, &there, MeterOptions::default());
    let spacing = &results.connections[0].main.spacing;
    assert_eq!(ms(&spacing.itt), [(30, 3), (210, 1)]);
    assert_eq!(ms(&spacing.iat), [(30, 2), (210, 1)]);
    assert_eq!(spacing.payload.steps(), [(100, 4), (200, 1)]);
    assert_eq!(spacing.packet.steps(), [(166, 4), (266, 1)]);
    assert_eq!(
        spacing.in_flight.steps(),
        [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]
    );
}

#[test]
fn main_direction_has_more_new_bytes() {
    let mut script = Script::new();
    script.handshake();
    script.at(10).data(1, 11);
    script.at(20).packet(Backward, 1, 500);
    let results = measure(&script, MeterOptions::default());
    let connection = &results.connections[0];
    assert_eq!(connection.sender, script.server);
    assert!(!connection.opened_by_sender);
    assert_eq!(connection.main.sent.counts.new_bytes, 500);
    assert_eq!(connection.back.sent.counts.new_bytes, 10);
}

/// A flow of five segments, from its SYN at 0 to the ACK of its last byte at 900 ms, with these
/// packets lost.
fn flow(lost: &[u64]) -> super::Completion {
    let mut script = established();
    for number in 0..5 {
        script.at(200).data(number * 100 + 1, number * 100 + 101);
    }
    for number in 0..5 {
        script.at(700).data(number * 100 + 1, number * 100 + 101);
    }
    script.at(900).ack(501).at(1000).close(501);
    let (here, there) = carry(&script, ONE_WAY, AHEAD, lost);
    let results = measure_both(&here, &there, MeterOptions::default());
    results.all.main.completion
}

#[test]
fn completion_time_is_first_syn_to_last_ack() {
    let completion = flow(&[]);
    assert_eq!(ms(&completion.time), [(900, 1)]);
    assert!(completion.with_a_tail_loss.is_empty());
}

#[test]
fn tail_loss_is_among_last_three_segments() {
    let first = 4;
    for lost in first..first + 2 {
        assert!(flow(&[lost]).with_a_tail_loss.is_empty(), "{lost}");
    }
    for lost in first + 2..first + 5 {
        assert_eq!(ms(&flow(&[lost]).with_a_tail_loss), [(900, 1)], "{lost}");
    }
}

#[test]
fn connection_with_unacked_bytes_has_no_completion_time() {
    let mut script = established();
    script.at(200).data(1, 101).at(300).data(101, 201);
    script.at(400).ack(101);
    let results = measure(&script, MeterOptions::default());
    assert!(results.all.main.completion.time.is_empty());
}

#[test]
fn blocked_bytes_are_counted_by_missing_byte() {
    let script = one_loss();
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4]);
    let results = measure_both(&here, &there, MeterOptions::default());
    let blocking = &results.connections[0].main.head_of_line;
    assert_eq!(ms(&blocking.wait), [(210, 1), (240, 1), (270, 1)]);
    assert_eq!(
        (blocking.blocked_bytes, blocking.readable_bytes),
        (300, 400)
    );
    assert_eq!(blocking.blocked_share, Some(0.75));
    assert!((blocking.byte_seconds - 72.0).abs() < 1e-9);
    let [hol_block] = blocking.blocks[..] else {
        panic!("{:?}", blocking.blocks);
    };
    assert_eq!(
        (hol_block.position, hol_block.ranges, hol_block.bytes),
        (1, 3, 300)
    );
    assert_eq!(hol_block.longest_ms, 270.0);
    assert!(results.all.main.head_of_line.blocks.is_empty());
}

#[test]
fn bytes_arriving_with_missing_byte_do_not_wait() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script
        .at(500)
        .data(1, 201)
        .at(650)
        .ack(201)
        .at(700)
        .close(201);
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4, 5]);
    let results = measure_both(&here, &there, MeterOptions::default());
    let main = &results.connections[0].main;
    assert_eq!(ms(&main.delay.application), [(345, 1), (375, 1)]);
    assert!(main.head_of_line.wait.is_empty());
    assert!(main.head_of_line.blocks.is_empty());
}

#[test]
fn connection_in_one_trace_is_measured_as_single_trace() {
    for opened_by_other in [false, true] {
        let scripts = [
            with(5001, SHOWN, opened_by_other),
            with(5002, NOT_SHOWN, opened_by_other),
        ];
        let [here, there] = traces(&scripts, is_shown);
        let results = measure_both(&here, &there, MeterOptions::default());
        let [shown, other] = &results.connections[..] else {
            panic!("{:?}", results.connections);
        };
        assert_eq!((shown.only_at, other.only_at), (None, Some(Side::Sender)));
        let all = &results.all;
        let counts = all.handshakes;
        assert_eq!((counts.only_at_sender, counts.only_at_receiver), (1, 0));
        assert_eq!((counts.without_data, counts.problematic), (0, 0));
        // Both send the same data.
        assert_eq!(other.main.sent.counts, shown.main.sent.counts);
        assert_eq!(other.throughput_bit_per_s, shown.throughput_bit_per_s);
        assert_eq!(all.fairness.jain_index, Some(1.0));
        assert_eq!(other.main.latency.ack_latency.len(), 20);
        assert!(other.main.loss.is_none() && other.back.loss.is_none());
        let loss = all.main.loss.as_ref().unwrap();
        assert_eq!((loss.data_packets, loss.unknown_data_packets), (20, 0));
        assert_eq!(
            (
                loss.delivery_stats.lost_packets,
                loss.delivery_stats.unseen_bytes
            ),
            (0, 0)
        );
        assert_eq!(all.main.delay.unknown_delays, Default::default());
        let json = serde_json::to_value(&results).unwrap();
        assert_eq!(json["connections"][1]["only_at"], "sender");
        assert_eq!(json["connections"][0]["only_at"], serde_json::Value::Null);
        assert_eq!(json["all"]["handshakes"]["only_at_sender"], 1);
    }
}

#[test]
fn connection_only_at_receiver_counts_as_with_data() {
    let scripts = [with(5001, SHOWN, false), with(5002, SHOWN, false)];
    let [mut here, there] = traces(&scripts, |_| true);
    here.retain(|packet| [packet.from.port, packet.to.port].contains(&5001));
    let results = measure_both(&here, &there, MeterOptions::default());
    let counts = results.all.handshakes;
    assert_eq!((counts.only_at_sender, counts.only_at_receiver), (0, 1));
    assert_eq!(counts.without_data, 0);
}
