//! Forward retransmission, as in Linux up to 4.10 (RFC 3517, section 4, rule 3 of NextSeg).

use pillion_tests::Wire;

use super::common::{
    MS, acknowledge, expect_at_once, plain, position, run, sack, send, send_several,
};

const CLASSIC: (&str, u8) = ("tcp_recovery", 0);
const FACK: (&str, u8) = ("tcp_fack", 1);
const ON: (&str, u8) = ("tcp_forward_retransmit", 1);
/// Each segment is retransmitted as it was.
const APART: (&str, u8) = ("tcp_retrans_collapse", 0);

fn settle(wire: &mut Wire) {
    send(wire);
    acknowledge(wire);
}

/// The first of four segments is retransmitted, and one more leaves the network; the second is not
/// marked lost.
fn recover(wire: &mut Wire) -> String {
    let [first, second, third, fourth] = send_several(wire);
    sack(wire, &first, &fourth);
    expect_at_once(wire, &first);
    let end = wire.written() + 1;
    wire.ack_sack(position(&first), &format!("{}:{end}", position(&third)));
    second
}

#[test]
#[ignore = "runs in the lab kernel"]
fn repairs_what_is_not_marked_lost_below_the_most_forward_segment() {
    run(&plain(), &[CLASSIC, FACK, ON, APART], |wire| {
        settle(wire);
        let second = recover(wire);
        expect_at_once(wire, &second);
        wire.expect_nothing(50 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn is_off_by_default() {
    run(&plain(), &[CLASSIC, FACK, APART], |wire| {
        settle(wire);
        recover(wire);
        wire.expect_nothing(50 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn new_data_comes_before() {
    run(&plain(), &[CLASSIC, FACK, ON, APART], |wire| {
        settle(wire);
        let [first, _second, third, fourth] = send_several(wire);
        sack(wire, &first, &fourth);
        expect_at_once(wire, &first);
        let sacked = wire.written() + 1;
        wire.write_with(100, libc::MSG_MORE);
        wire.ack_sack(position(&first), &format!("{}:{sacked}", position(&third)));
        expect_at_once(wire, &format!("{sacked}:{}", sacked + 100));
        wire.expect_nothing(50 * MS);
    });
}
