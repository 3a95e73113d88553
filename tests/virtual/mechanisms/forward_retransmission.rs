//! Forward retransmission, as in Linux up to 4.10 (RFC 3517, section 4, rule 3 of NextSeg).

use pillion_tests::Wire;

use super::common::{
    MS, acknowledge, expect_immediately, plain, position, run, sack, send, send_several,
};

const CLASSIC: (&str, u8) = ("tcp_recovery", 0);
const FACK: (&str, u8) = ("tcp_fack", 1);
const ON: (&str, u8) = ("tcp_forward_retransmit", 1);
/// Retransmissions have the original segment boundaries.
const NO_COLLAPSE: (&str, u8) = ("tcp_retrans_collapse", 0);

fn establish_rtt(wire: &mut Wire) {
    send(wire);
    acknowledge(wire);
}

/// Starts recovery: the first of four segments is retransmitted, and one more leaves the network.
/// Returns the second segment, which is not marked lost.
fn enter_recovery(wire: &mut Wire) -> String {
    let [first, second, third, fourth] = send_several(wire);
    sack(wire, &first, &fourth);
    expect_immediately(wire, &first);
    let end = wire.written() + 1;
    wire.ack_sack(position(&first), &format!("{}:{end}", position(&third)));
    second
}

#[test]
#[ignore = "runs in the lab kernel"]
fn retransmits_unmarked_segments_below_highest_sack() {
    run(&plain(), &[CLASSIC, FACK, ON, NO_COLLAPSE], |wire| {
        establish_rtt(wire);
        let second = enter_recovery(wire);
        expect_immediately(wire, &second);
        wire.expect_nothing(50 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn is_off_by_default() {
    run(&plain(), &[CLASSIC, FACK, NO_COLLAPSE], |wire| {
        establish_rtt(wire);
        enter_recovery(wire);
        wire.expect_nothing(50 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn new_data_precedes_forward_retransmission() {
    run(&plain(), &[CLASSIC, FACK, ON, NO_COLLAPSE], |wire| {
        establish_rtt(wire);
        let [first, _second, third, fourth] = send_several(wire);
        sack(wire, &first, &fourth);
        expect_immediately(wire, &first);
        let sacked = wire.written() + 1;
        wire.write_with(100, libc::MSG_MORE);
        wire.ack_sack(position(&first), &format!("{}:{sacked}", position(&third)));
        expect_immediately(wire, &format!("{sacked}:{}", sacked + 100));
        wire.expect_nothing(50 * MS);
    });
}
