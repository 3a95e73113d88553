//! Forward acknowledgment, as in Linux up to 4.14 (Mathis, Mahdavi, 1996).

use pillion_tests::Wire;

use super::common::{
    MS, acknowledge, expect_at_once, expect_three_dupacks_awaited, plain, position, run, sack,
    send, send_several,
};

const CLASSIC: (&str, u8) = ("tcp_recovery", 0);
const ON: (&str, u8) = ("tcp_fack", 1);
/// Each segment is retransmitted as it was.
const APART: (&str, u8) = ("tcp_retrans_collapse", 0);

fn settle(wire: &mut Wire) {
    send(wire);
    acknowledge(wire);
}

#[test]
#[ignore = "runs in the lab kernel"]
fn takes_the_most_forward_segment_for_as_many_dupacks_as_lie_below_it() {
    run(&plain(), &[CLASSIC, ON, APART], |wire| {
        settle(wire);
        let [first, _second, _third, fourth] = send_several(wire);
        sack(wire, &first, &fourth);
        expect_at_once(wire, &first);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn is_off_by_default_and_beside_rack() {
    // RACK waits for a quarter of the RTT.
    for (first, silence) in [(CLASSIC, 150 * MS), (ON, 10 * MS)] {
        run(&plain(), &[first, APART], |wire| {
            settle(wire);
            let [first, _second, _third, fourth] = send_several(wire);
            sack(wire, &first, &fourth);
            wire.expect_nothing(silence);
        });
    }
}

#[test]
#[ignore = "runs in the lab kernel"]
fn a_segment_lost_alone_waits_for_three_dupacks() {
    run(&plain(), &[CLASSIC, ON], |wire| {
        settle(wire);
        expect_three_dupacks_awaited(wire);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn what_lies_three_segments_below_the_most_forward_one_is_lost() {
    run(&plain(), &[CLASSIC, ON, APART], |wire| {
        settle(wire);
        let [first, second, _third, fourth, fifth] = send_several(wire);
        sack(wire, &first, &fifth);
        expect_at_once(wire, &first);
        // What leaves the network makes room for the next.
        wire.ack_sack(position(&first), &joined(&format!("{fourth} {fifth}")));
        expect_at_once(wire, &second);
        wire.expect_nothing(50 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn a_retransmission_is_lost_once_what_was_sent_after_it_arrives() {
    for (fack, lost) in [(ON, true), (("tcp_fack", 0), false)] {
        run(&plain(), &[CLASSIC, fack, APART], |wire| {
            settle(wire);
            let [first, second, third, fourth] = send_several(wire);
            sack(wire, &first, &format!("{second} {third} {fourth}"));
            expect_at_once(wire, &first);
            let [fifth, sixth] = send_several(wire);
            let all = format!("{second} {third} {fourth} {fifth} {sixth}");
            sack(wire, &first, &joined(&all));
            if lost {
                expect_at_once(wire, &first);
            } else {
                wire.expect_nothing(50 * MS);
            }
        });
    }
}

/// The range from the first segment's start to the last one's end.
fn joined(segments: &str) -> String {
    let end = segments.rsplit(':').next().expect("ranges");
    format!("{}:{end}", position(segments))
}
