//! Early retransmit (RFC 5827), at once or a quarter of the RTT later (Linux 3.5).

use std::time::Duration;

use pillion_tests::{Setup, Wire, sysctl};

use super::common::{
    MS, RTT, acknowledge, expect_after, expect_at_once, expect_new_data_instead,
    expect_three_dupacks_awaited, plain, position, run, sack, send, send_several,
};

const CLASSIC: (&str, u8) = ("tcp_recovery", 0);
const AT_ONCE: (&str, u8) = ("tcp_early_retransmit", 1);
const DELAYED: (&str, u8) = ("tcp_early_retransmit", 2);
const OF_LINUX: (&str, u8) = ("tcp_early_retransmit", 3);
/// A retransmission is as what it repeats was.
const APART: (&str, u8) = ("tcp_retrans_collapse", 0);

/// The RTT is known; nothing is outstanding.
fn settle(wire: &mut Wire) {
    send(wire);
    acknowledge(wire);
}

#[test]
#[ignore = "runs in the lab kernel"]
fn needs_one_dupack_less_than_segments_are_outstanding() {
    for recovery in [CLASSIC, ("tcp_recovery", 1)] {
        run(&plain(), &[recovery, AT_ONCE], |wire| {
            settle(wire);
            let [first, second] = send_several(wire);
            sack(wire, &first, &second);
            expect_at_once(wire, &first);
        });
    }
    run(&plain(), &[CLASSIC, AT_ONCE], |wire| {
        settle(wire);
        let [first, second, third] = send_several(wire);
        sack(wire, &first, &second);
        wire.expect_nothing(500 * MS);
        sack(wire, &first, &format!("{second} {third}"));
        expect_at_once(wire, &first);
        wire.expect_nothing(500 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn is_off_by_default() {
    run(&plain(), &[CLASSIC], |wire| {
        settle(wire);
        let [first, second] = send_several(wire);
        sack(wire, &first, &second);
        wire.expect_nothing(500 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn leaves_four_outstanding_segments_to_three_dupacks() {
    run(&plain(), &[CLASSIC, AT_ONCE], |wire| {
        settle(wire);
        expect_three_dupacks_awaited(wire);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn works_without_sack() {
    run(
        &plain(),
        &[CLASSIC, AT_ONCE, ("tcp_sack", 0), APART],
        |wire| {
            settle(wire);
            let acknowledged = wire.written() + 1;
            let [first, ..] = send_several::<3>(wire);
            wire.ack(acknowledged);
            wire.expect_nothing(500 * MS);
            wire.ack(acknowledged);
            expect_at_once(wire, &first);
        },
    );
}

#[test]
#[ignore = "runs in the lab kernel"]
fn waits_where_unsent_data_can_be_sent() {
    run(&plain(), &[CLASSIC, AT_ONCE], |wire| {
        settle(wire);
        expect_new_data_instead(wire);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn does_not_wait_for_data_beyond_the_peers_window() {
    run(&plain(), &[CLASSIC, AT_ONCE], |wire| {
        send(wire);
        wire.expect_nothing(RTT);
        wire.ack_window(wire.written() + 1, 2944);
        let [first, second] = two_full_segments(wire);
        wire.write(1460);
        sack(wire, &first, &second);
        expect_at_once(wire, &first);
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
fn stops_where_the_path_reorders() {
    run(&plain(), &[CLASSIC], |wire| {
        settle(wire);
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
fn delayed_comes_a_quarter_of_the_rtt_later() {
    // RACK waits as long, and one of them retransmits.
    for recovery in [CLASSIC, ("tcp_recovery", 1)] {
        run(&plain(), &[recovery, DELAYED], |wire| {
            settle(wire);
            let [first, second] = send_several(wire);
            sack(wire, &first, &second);
            expect_after(wire, &first, RTT / 4);
            wire.expect_nothing(500 * MS);
        });
    }
}

#[test]
#[ignore = "runs in the lab kernel"]
fn delayed_waits_two_milliseconds_at_least() {
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
fn delayed_is_called_off_by_what_was_missing() {
    run(&plain(), &[CLASSIC, DELAYED], |wire| {
        settle(wire);
        let [first, second] = send_several(wire);
        sack(wire, &first, &second);
        wire.expect_nothing(RTT / 8);
        wire.ack(wire.written() + 1);
        wire.expect_nothing(500 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn delayed_is_not_ended_by_a_further_dupack() {
    run(&plain(), &[CLASSIC, DELAYED], |wire| {
        settle(wire);
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
fn of_linux_takes_any_dupack_for_enough() {
    run(&plain(), &[CLASSIC, OF_LINUX], |wire| {
        settle(wire);
        let [first, second, _third] = send_several(wire);
        sack(wire, &first, &second);
        expect_after(wire, &first, RTT / 4);
    });
    run(&plain(), &[CLASSIC, DELAYED], |wire| {
        settle(wire);
        let [first, second, _third] = send_several(wire);
        sack(wire, &first, &second);
        wire.expect_nothing(RTT);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn of_linux_waits_anew_after_a_further_ack() {
    run(&plain(), &[CLASSIC, OF_LINUX], |wire| {
        settle(wire);
        let [first, second] = send_several(wire);
        sack(wire, &first, &second);
        wire.expect_nothing(RTT / 8);
        wire.ack_sack(position(&first), &second);
        expect_after(wire, &first, RTT / 4);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn of_linux_is_called_off_by_new_data() {
    run(&plain(), &[CLASSIC, OF_LINUX], |wire| {
        settle(wire);
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
fn reduces_the_window() {
    for mode in [AT_ONCE, DELAYED, OF_LINUX] {
        run(&plain(), &[CLASSIC, mode], |wire| {
            settle(wire);
            let [first, second] = send_several(wire);
            sack(wire, &first, &second);
            wire.expect(&first);
            // Half of 200 and of what slow start has added.
            let threshold = wire.tcp_info().tcpi_snd_ssthresh;
            assert!((100..=101).contains(&threshold), "{threshold}");
        });
    }
}
