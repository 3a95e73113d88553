//! Forward acknowledgment, as in Linux up to 4.14 (Mathis, Mahdavi, 1996).

use pillion_tests::Wire;

use super::common::{
    MS, acknowledge, expect_immediately, expect_wait_for_three_dupacks, plain, position, run, sack,
    send, send_several,
};

const CLASSIC: (&str, u8) = ("tcp_recovery", 0);
const ON: (&str, u8) = ("tcp_fack", 1);
/// Retransmissions have the original segment boundaries.
const NO_COLLAPSE: (&str, u8) = ("tcp_retrans_collapse", 0);

fn establish_rtt(wire: &mut Wire) {
    send(wire);
    acknowledge(wire);
}

#[test]
#[ignore = "runs in the lab kernel"]
fn sack_of_fourth_segment_counts_as_three_dupacks() {
    run(&plain(), &[CLASSIC, ON, NO_COLLAPSE], |wire| {
        establish_rtt(wire);
        let [first, _second, _third, fourth] = send_several(wire);
        sack(wire, &first, &fourth);
        expect_immediately(wire, &first);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn is_off_by_default_and_with_rack() {
    // RACK waits for a quarter of the RTT.
    for (first, silence) in [(CLASSIC, 150 * MS), (ON, 10 * MS)] {
        run(&plain(), &[first, NO_COLLAPSE], |wire| {
            establish_rtt(wire);
            let [first, _second, _third, fourth] = send_several(wire);
            sack(wire, &first, &fourth);
            wire.expect_nothing(silence);
        });
    }
}

#[test]
#[ignore = "runs in the lab kernel"]
fn single_loss_needs_three_dupacks() {
    run(&plain(), &[CLASSIC, ON], |wire| {
        establish_rtt(wire);
        expect_wait_for_three_dupacks(wire);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn segment_three_below_highest_sack_is_lost() {
    run(&plain(), &[CLASSIC, ON, NO_COLLAPSE], |wire| {
        establish_rtt(wire);
        let [first, second, _third, fourth, fifth] = send_several(wire);
        sack(wire, &first, &fifth);
        expect_immediately(wire, &first);
        // Segments that leave the network make room for the next retransmission.
        wire.ack_sack(position(&first), &joined(&format!("{fourth} {fifth}")));
        expect_immediately(wire, &second);
        wire.expect_nothing(50 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn retransmission_is_lost_once_later_data_is_sacked() {
    for (fack, lost) in [(ON, true), (("tcp_fack", 0), false)] {
        run(&plain(), &[CLASSIC, fack, NO_COLLAPSE], |wire| {
            establish_rtt(wire);
            let [first, second, third, fourth] = send_several(wire);
            sack(wire, &first, &format!("{second} {third} {fourth}"));
            expect_immediately(wire, &first);
            let [fifth, sixth] = send_several(wire);
            let all = format!("{second} {third} {fourth} {fifth} {sixth}");
            sack(wire, &first, &joined(&all));
            if lost {
                expect_immediately(wire, &first);
            } else {
                wire.expect_nothing(50 * MS);
            }
        });
    }
}

/// Returns the range from the start of the first segment to the end of the last.
fn joined(segments: &str) -> String {
    let end = segments.rsplit(':').next().expect("ranges");
    format!("{}:{end}", position(segments))
}
