//! Tail loss probes as the draft and Linux 3.10 had them
//! (draft-dukkipati-tcpm-tcp-loss-probe-01, section 2).

use pillion_tests::{Wire, sysctl};

use super::common::{
    MS, RTT, acknowledge, expect_after, plain, position, run, sack, send, send_several,
};

const CLASSIC: (&str, u8) = ("tcp_recovery", 0);
const ON: (&str, u8) = ("tcp_tlp_draft", 1);
/// A probe is as what it repeats was.
const APART: (&str, u8) = ("tcp_retrans_collapse", 0);
/// Early retransmit as Linux 3.12 had it, beside probes.
const EARLY: (&str, u8) = ("tcp_early_retransmit", 3);

/// The RTT is known; there are probes, which tests of the wire do without.
fn settle(wire: &mut Wire) {
    sysctl("net.ipv4.tcp_early_retrans", "3");
    for _ in 0..3 {
        send(wire);
        acknowledge(wire);
    }
}

#[test]
#[ignore = "runs in the lab kernel"]
fn several_segments_are_probed_for_after_two_rtts() {
    run(&plain(), &[CLASSIC, ON, APART], |wire| {
        settle(wire);
        let [_first, second] = send_several(wire);
        expect_after(wire, &second, 2 * RTT);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn a_segment_alone_is_probed_for_when_its_ack_was_delayed_at_the_longest() {
    run(&plain(), &[CLASSIC, ON, APART], |wire| {
        settle(wire);
        let segment = send(wire);
        expect_after(wire, &segment, RTT + RTT / 2 + 200 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn a_dupack_calls_the_probe_off() {
    for (draft, probed) in [(ON, false), (("tcp_tlp_draft", 0), true)] {
        run(&plain(), &[CLASSIC, draft, APART], |wire| {
            settle(wire);
            let [first, second, third] = send_several(wire);
            sack(wire, &first, &second);
            assert_eq!(position(&first) + 200, position(&third));
            if probed {
                expect_after(wire, &third, RTT);
            } else {
                wire.expect_nothing(RTT + 50 * MS);
            }
        });
    }
}

#[test]
#[ignore = "runs in the lab kernel"]
fn early_retransmit_takes_the_place_of_the_probe() {
    run(&plain(), &[CLASSIC, ON, APART, EARLY], |wire| {
        settle(wire);
        let [first, second] = send_several(wire);
        sack(wire, &first, &second);
        expect_after(wire, &first, RTT / 4);
        wire.expect_nothing(RTT);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn early_retransmit_goes_on_where_a_probe_has_told_of_a_loss() {
    run(&plain(), &[CLASSIC, ON, APART, EARLY], |wire| {
        settle(wire);
        let [first, second] = send_several(wire);
        expect_after(wire, &second, 2 * RTT);
        sack(wire, &first, &second);
        expect_after(wire, &first, RTT / 4);
    });
}
