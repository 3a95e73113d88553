//! Tail loss probes as in the draft and Linux 3.10
//! (draft-dukkipati-tcpm-tcp-loss-probe-01, section 2).

use pillion_tests::{Wire, sysctl};

use super::common::{
    MS, RTT, acknowledge, expect_after, plain, position, run, sack, send, send_several,
};

const CLASSIC: (&str, u8) = ("tcp_recovery", 0);
const ON: (&str, u8) = ("tcp_tlp_draft", 1);
/// Probes have the original segment boundaries.
const NO_COLLAPSE: (&str, u8) = ("tcp_retrans_collapse", 0);
/// Early retransmit as in Linux 3.12, together with probes.
const EARLY_RETRANSMIT: (&str, u8) = ("tcp_early_retransmit", 3);

/// Gives the connection an RTT estimate and enables tail loss probes, which wire tests disable.
fn establish_rtt(wire: &mut Wire) {
    sysctl("net.ipv4.tcp_early_retrans", "3");
    for _ in 0..3 {
        send(wire);
        acknowledge(wire);
    }
}

#[test]
#[ignore = "runs in the lab kernel"]
fn several_segments_are_probed_after_two_rtts() {
    run(&plain(), &[CLASSIC, ON, NO_COLLAPSE], |wire| {
        establish_rtt(wire);
        let [_first, second] = send_several(wire);
        expect_after(wire, &second, 2 * RTT);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn single_segment_is_probed_after_longest_delayed_ack() {
    run(&plain(), &[CLASSIC, ON, NO_COLLAPSE], |wire| {
        establish_rtt(wire);
        let segment = send(wire);
        expect_after(wire, &segment, RTT + RTT / 2 + 200 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn dupack_cancels_probe() {
    for (draft, probed) in [(ON, false), (("tcp_tlp_draft", 0), true)] {
        run(&plain(), &[CLASSIC, draft, NO_COLLAPSE], |wire| {
            establish_rtt(wire);
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
fn early_retransmit_replaces_probe() {
    run(
        &plain(),
        &[CLASSIC, ON, NO_COLLAPSE, EARLY_RETRANSMIT],
        |wire| {
            establish_rtt(wire);
            let [first, second] = send_several(wire);
            sack(wire, &first, &second);
            expect_after(wire, &first, RTT / 4);
            wire.expect_nothing(RTT);
        },
    );
}

#[test]
#[ignore = "runs in the lab kernel"]
fn early_retransmit_follows_probe_that_reveals_loss() {
    run(
        &plain(),
        &[CLASSIC, ON, NO_COLLAPSE, EARLY_RETRANSMIT],
        |wire| {
            establish_rtt(wire);
            let [first, second] = send_several(wire);
            expect_after(wire, &second, 2 * RTT);
            sack(wire, &first, &second);
            expect_after(wire, &first, RTT / 4);
        },
    );
}
