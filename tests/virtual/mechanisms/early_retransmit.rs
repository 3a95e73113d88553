//! Early retransmit (RFC 5827), immediately or a quarter of the RTT later (Linux 3.5).

use std::time::Duration;

use pillion_tests::{Setup, Wire, sysctl};

use super::common::{
    MS, RTT, acknowledge, expect_after, expect_immediately, expect_new_data_instead,
    expect_wait_for_three_dupacks, plain, position, run, sack, send, send_several,
};

const CLASSIC: (&str, u8) = ("tcp_recovery", 0);
const IMMEDIATE: (&str, u8) = ("tcp_early_retransmit", 1);
const DELAYED: (&str, u8) = ("tcp_early_retransmit", 2);
const LINUX: (&str, u8) = ("tcp_early_retransmit", 3);
/// Retransmissions have the original segment boundaries.
const NO_COLLAPSE: (&str, u8) = ("tcp_retrans_collapse", 0);

/// Gives the connection an RTT estimate, with nothing outstanding.
fn establish_rtt(wire: &mut Wire) {
    send(wire);
    acknowledge(wire);
}

#[test]
#[ignore = "runs in the lab kernel"]
fn retransmits_after_one_dupack_less_than_outstanding() {
    for recovery in [CLASSIC, ("tcp_recovery", 1)] {
        run(&plain(), &[recovery, IMMEDIATE], |wire| {
            establish_rtt(wire);
            let [first, second] = send_several(wire);
            sack(wire, &first, &second);
            expect_immediately(wire, &first);
        });
    }
    run(&plain(), &[CLASSIC, IMMEDIATE], |wire| {
        establish_rtt(wire);
        let [first, second, third] = send_several(wire);
        sack(wire, &first, &second);
        wire.expect_nothing(500 * MS);
        sack(wire, &first, &format!("{second} {third}"));
        expect_immediately(wire, &first);
        wire.expect_nothing(500 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn is_off_by_default() {
    run(&plain(), &[CLASSIC], |wire| {
        establish_rtt(wire);
        let [first, second] = send_several(wire);
        sack(wire, &first, &second);
        wire.expect_nothing(500 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn four_outstanding_segments_need_three_dupacks() {
    run(&plain(), &[CLASSIC, IMMEDIATE], |wire| {
        establish_rtt(wire);
        expect_wait_for_three_dupacks(wire);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn works_without_sack() {
    run(
        &plain(),
        &[CLASSIC, IMMEDIATE, ("tcp_sack", 0), NO_COLLAPSE],
        |wire| {
            establish_rtt(wire);
            let acknowledged = wire.written() + 1;
            let [first, ..] = send_several::<3>(wire);
            wire.ack(acknowledged);
            wire.expect_nothing(500 * MS);
            wire.ack(acknowledged);
            expect_immediately(wire, &first);
        },
    );
}

#[test]
#[ignore = "runs in the lab kernel"]
fn unsent_data_within_window_prevents_retransmit() {
    run(&plain(), &[CLASSIC, IMMEDIATE], |wire| {
        establish_rtt(wire);
        expect_new_data_instead(wire);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn unsent_data_beyond_peer_window_allows_retransmit() {
    run(&plain(), &[CLASSIC, IMMEDIATE], |wire| {
        send(wire);
        wire.expect_nothing(RTT);
        wire.ack_window(wire.written() + 1, 2944);
        let [first, second] = two_full_segments(wire);
        wire.write(1460);
        sack(wire, &first, &second);
        expect_immediately(wire, &first);
    });
}

fn two_full_segments(wire: &mut Wire) -> [String; 2] {
    [(); 2].map(|()| {
        let start = wire.written() + 1;
        let segment = format!("{start}:{}", start + 1460);
        wire.sends(&segment);
        segment
    })
}

#[test]
#[ignore = "runs in the lab kernel"]
fn reordering_disables_early_retransmit() {
    run(&plain(), &[CLASSIC], |wire| {
        establish_rtt(wire);
        let [first, second] = send_several(wire);
        sack(wire, &first, &second);
        wire.ack(wire.written() + 1);
        sysctl("net.ipv4.tcp_early_retransmit", "1");
        let [first, second] = send_several(wire);
        sack(wire, &first, &second);
        wire.expect_nothing(500 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn delayed_mode_waits_quarter_rtt() {
    // RACK waits for the same time; only one of them retransmits.
    for recovery in [CLASSIC, ("tcp_recovery", 1)] {
        run(&plain(), &[recovery, DELAYED], |wire| {
            establish_rtt(wire);
            let [first, second] = send_several(wire);
            sack(wire, &first, &second);
            expect_after(wire, &first, RTT / 4);
            wire.expect_nothing(500 * MS);
        });
    }
}

#[test]
#[ignore = "runs in the lab kernel"]
fn delayed_mode_waits_at_least_two_ms() {
    let near = Setup {
        rtt: Duration::ZERO,
        ..plain()
    };
    run(&near, &[CLASSIC, DELAYED], |wire| {
        let [first, second] = send_several(wire);
        wire.ack_sack(1, &second);
        expect_after(wire, &first, 2 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn ack_of_missing_segment_cancels_delayed_mode() {
    run(&plain(), &[CLASSIC, DELAYED], |wire| {
        establish_rtt(wire);
        let [first, second] = send_several(wire);
        sack(wire, &first, &second);
        wire.expect_nothing(RTT / 8);
        wire.ack(wire.written() + 1);
        wire.expect_nothing(500 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn further_dupack_does_not_cancel_delayed_mode() {
    run(&plain(), &[CLASSIC, DELAYED], |wire| {
        establish_rtt(wire);
        let [first, second] = send_several(wire);
        sack(wire, &first, &second);
        wire.expect_nothing(RTT / 8);
        wire.ack_sack(position(&first), &second);
        expect_after(wire, &first, RTT / 8);
        wire.expect_nothing(500 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn linux_mode_needs_only_one_dupack() {
    run(&plain(), &[CLASSIC, LINUX], |wire| {
        establish_rtt(wire);
        let [first, second, _third] = send_several(wire);
        sack(wire, &first, &second);
        expect_after(wire, &first, RTT / 4);
    });
    run(&plain(), &[CLASSIC, DELAYED], |wire| {
        establish_rtt(wire);
        let [first, second, _third] = send_several(wire);
        sack(wire, &first, &second);
        wire.expect_nothing(RTT);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn linux_mode_restarts_delay_on_further_ack() {
    run(&plain(), &[CLASSIC, LINUX], |wire| {
        establish_rtt(wire);
        let [first, second] = send_several(wire);
        sack(wire, &first, &second);
        wire.expect_nothing(RTT / 8);
        wire.ack_sack(position(&first), &second);
        expect_after(wire, &first, RTT / 4);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn new_data_cancels_linux_mode_until_next_ack() {
    run(&plain(), &[CLASSIC, LINUX], |wire| {
        establish_rtt(wire);
        let [first, second] = send_several(wire);
        sack(wire, &first, &second);
        wire.expect_nothing(RTT / 8);
        let third = send(wire);
        wire.expect_nothing(RTT);
        wire.ack_sack(position(&first), &format!("{second} {third}"));
        expect_after(wire, &first, RTT / 4);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn reduces_congestion_window() {
    for mode in [IMMEDIATE, DELAYED, LINUX] {
        run(&plain(), &[CLASSIC, mode], |wire| {
            establish_rtt(wire);
            let [first, second] = send_several(wire);
            sack(wire, &first, &second);
            wire.expect(&first);
            // Half of 200 and of the growth in slow start.
            let threshold = wire.tcp_info().tcpi_snd_ssthresh;
            assert!((100..=101).contains(&threshold), "{threshold}");
        });
    }
}
