//! What had come behind a gap was not lost, whatever the report of duplicates leaves out.

use std::time::Duration;

use pillion_bpf::{LossRule, Options};
use pillion_tests::{Setup, Wire};

use crate::hidden_loss::{hidden, options};

const LONG: Duration = Duration::from_secs(2);

/// TCP waits for an eighth of the round trip before it retransmits what precedes a gap.
fn long_round_trip(options: Options) -> Setup {
    Setup {
        rtt: LONG,
        ..Setup::bundling(options)
    }
}

/// Sends segments of which the first is acknowledged, after a long round trip.
fn sends_and_acks_the_first(wire: &mut Wire, ranges: &str, end: u32) {
    wire.sends(ranges);
    wire.expect_nothing(LONG);
    wire.ack(end);
}

#[test]
fn what_had_come_between_two_losses_was_not_lost() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        sends_and_acks_the_first(wire, "1:101 1:201 1:301 1:401 1:501", 101);
        wire.acks_late(101, "201:301");
        // It brought 101:201 and 301:401; of what came twice, one range is reported.
        wire.ack_duplicate(501, "1:101", "");
        assert_eq!(hidden(wire), (2, 200, 0));
    });
}

#[test]
fn every_block_of_an_ack_tells_what_had_come() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        sends_and_acks_the_first(wire, "1:51 1:101 1:151 1:201 1:251 1:301 1:351", 51);
        // Those that told of 201:251 first and of 101:151 were lost before.
        wire.acks_late(51, "201:251 101:151");
        wire.ack_duplicate(351, "1:51", "");
        assert_eq!(hidden(wire), (3, 150, 0));
    });
}

#[test]
fn a_segment_that_had_come_in_part_was_lost() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        sends_and_acks_the_first(wire, "1:101 1:201 1:301 1:401", 101);
        wire.acks_late(101, "151:301");
        wire.ack_duplicate(401, "1:101", "");
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

#[test]
fn what_had_come_behind_a_gap_says_nothing_of_later_segments() {
    let options = Options {
        max_packets: Some(1),
        ..options(LossRule::Dsack)
    };
    long_round_trip(options).run(|wire| {
        let end = |segment: u32| 1 + 10 * segment;
        sends_and_acks_the_first(wire, "1:11 1:21 11:31 21:41", end(1));
        wire.acks_late(end(1), "21:31");
        wire.ack_duplicate(end(4), "21:31", "");
        assert_eq!(hidden(wire), (0, 0, 0));
        // Long enough for each place of the record to be taken by others, twice.
        for lost in (5..300).step_by(2) {
            let (from, next) = (end(lost - 1), end(lost + 1));
            wire.sends(&format!("{from}:{} {from}:{next}", end(lost)));
            wire.ack(next);
        }
        assert_eq!(hidden(wire), (148, 1480, 0));
    });
}

/// The ACK answers the segment behind the gap, and the bundle's own, with its report, was delayed until
/// then: a receiver that has yet to send a report forgets it when a segment comes out of order.
#[test]
fn an_ack_for_what_has_come_behind_a_gap_tells_nothing_of_the_bundle_before() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        sends_and_acks_the_first(wire, "1:51 1:101 1:151 1:201 1:251", 51);
        wire.acks_late(151, "201:251");
        assert_eq!(hidden(wire), (0, 0, 0));
        // What is known to have come behind the gap is nothing new in the next bundle's.
        wire.acks_late(201, "201:251");
        assert_eq!(hidden(wire), (0, 0, 0));
        wire.ack(251);
    });
}

/// TCP knows of such a gap: it would take for reordered what fills it though it has not retransmitted
/// it, and wait longer from then on.
#[test]
fn a_gap_before_what_has_come_is_left_to_tcp() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        sends_and_acks_the_first(wire, "1:101 1:201 1:301 1:401", 101);
        wire.ack_sack(101, "201:301");
        wire.sends("201:501");
    });
}

/// Of segments that left in one packet, the first is late: what has come of the others is new.
#[test]
fn a_part_of_a_large_packet_that_has_come_behind_a_gap_takes_the_report() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        wire.sends("1:51 1:101");
        wire.write(3 * wire.mss());
        wire.expect("101:1561 1561:3021 3021:4481");
        wire.acks_late(101, "1561:3021");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}
