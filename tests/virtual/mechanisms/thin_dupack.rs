//! Modified fast retransmit (Petlund et al., LCN 2008, section III; Linux 2.6.34).

use pillion_tests::Wire;

use super::common::{
    MS, expect_at_once, expect_new_data_instead, expect_three_dupacks_awaited, leave_slow_start,
    plain, run, sack, send, send_several,
};

const THIN_DUPACK: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_THIN_DUPACK);

/// Neither RACK nor anything else but the third dupACK retransmits.
const CLASSIC: (&str, u8) = ("tcp_recovery", 0);
const ON: (&str, u8) = ("tcp_thin_dupack", 1);

/// With three segments outstanding, the second one arrives and the first does not.
fn first_is_missing(wire: &mut Wire) -> [String; 3] {
    let segments = send_several(wire);
    sack(wire, &segments[0], &segments[1]);
    segments
}

#[test]
#[ignore = "runs in the lab kernel"]
fn one_dupack_suffices_while_fewer_than_four_are_in_flight() {
    for recovery in [CLASSIC, ("tcp_recovery", 1)] {
        run(&plain(), &[recovery, ON], |wire| {
            leave_slow_start(wire);
            let [first, ..] = first_is_missing(wire);
            expect_at_once(wire, &first);
            wire.expect_nothing(500 * MS);
        });
    }
}

#[test]
#[ignore = "runs in the lab kernel"]
fn is_off_by_default() {
    run(&plain(), &[CLASSIC], |wire| {
        leave_slow_start(wire);
        assert_eq!(wire.option(THIN_DUPACK), 0);
        let [first, second, third] = first_is_missing(wire);
        sack(wire, &first, &format!("{second} {third}"));
        wire.expect_nothing(500 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn can_be_asked_for_by_one_connection() {
    run(&plain(), &[CLASSIC], |wire| {
        leave_slow_start(wire);
        wire.set_option(THIN_DUPACK, &1i32.to_ne_bytes());
        assert_eq!(wire.option(THIN_DUPACK), 1);
        let [first, ..] = first_is_missing(wire);
        expect_at_once(wire, &first);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn with_four_in_flight_three_dupacks_are_awaited() {
    run(&plain(), &[CLASSIC, ON], |wire| {
        leave_slow_start(wire);
        expect_three_dupacks_awaited(wire);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn in_initial_slow_start_changes_nothing() {
    run(&plain(), &[CLASSIC, ON], |wire| {
        first_is_missing(wire);
        wire.expect_nothing(500 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn without_sack_changes_nothing() {
    run(&plain(), &[CLASSIC, ON, ("tcp_sack", 0)], |wire| {
        leave_slow_start(wire);
        let acknowledged = wire.written() + 1;
        send_several::<3>(wire);
        wire.ack(acknowledged);
        wire.ack(acknowledged);
        wire.expect_nothing(500 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn with_unsent_data_changes_nothing() {
    run(&plain(), &[CLASSIC, ON], |wire| {
        leave_slow_start(wire);
        expect_new_data_instead(wire);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn reduces_the_window_once() {
    run(&plain(), &[CLASSIC, ON], |wire| {
        leave_slow_start(wire);
        let before = wire.tcp_info().tcpi_snd_ssthresh;
        let [first, ..] = first_is_missing(wire);
        wire.expect(&first);
        assert!(wire.tcp_info().tcpi_snd_ssthresh < before);
        assert_eq!(wire.tcp_info().tcpi_total_retrans, 1);
        let after = wire.written() + 1;
        wire.ack(after);
        send(wire);
    });
}
