//! Modified fast retransmit (Petlund et al., LCN 2008, section III; Linux 2.6.34).

use pillion_tests::Wire;

use super::common::{
    MS, expect_immediately, expect_new_data_instead, expect_wait_for_three_dupacks,
    leave_slow_start, plain, run, sack, send, send_several,
};

const THIN_DUPACK: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_THIN_DUPACK);

/// Without RACK, only the third dupACK triggers a retransmission.
const CLASSIC: (&str, u8) = ("tcp_recovery", 0);
const ON: (&str, u8) = ("tcp_thin_dupack", 1);

/// Sends three segments; the second arrives and the first is lost. Returns all three.
fn lose_first_of_three(wire: &mut Wire) -> [String; 3] {
    let segments = send_several(wire);
    sack(wire, &segments[0], &segments[1]);
    segments
}

#[test]
#[ignore = "runs in the lab kernel"]
fn one_dupack_suffices_below_four_in_flight() {
    for recovery in [CLASSIC, ("tcp_recovery", 1)] {
        run(&plain(), &[recovery, ON], |wire| {
            leave_slow_start(wire);
            let [first, ..] = lose_first_of_three(wire);
            expect_immediately(wire, &first);
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
        let [first, second, third] = lose_first_of_three(wire);
        sack(wire, &first, &format!("{second} {third}"));
        wire.expect_nothing(500 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn socket_option_enables_one_connection() {
    run(&plain(), &[CLASSIC], |wire| {
        leave_slow_start(wire);
        wire.set_option(THIN_DUPACK, &1i32.to_ne_bytes());
        assert_eq!(wire.option(THIN_DUPACK), 1);
        let [first, ..] = lose_first_of_three(wire);
        expect_immediately(wire, &first);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn four_in_flight_need_three_dupacks() {
    run(&plain(), &[CLASSIC, ON], |wire| {
        leave_slow_start(wire);
        expect_wait_for_three_dupacks(wire);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn initial_slow_start_prevents_retransmit() {
    run(&plain(), &[CLASSIC, ON], |wire| {
        lose_first_of_three(wire);
        wire.expect_nothing(500 * MS);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn missing_sack_prevents_retransmit() {
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
fn unsent_data_prevents_retransmit() {
    run(&plain(), &[CLASSIC, ON], |wire| {
        leave_slow_start(wire);
        expect_new_data_instead(wire);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn reduces_congestion_window_once() {
    run(&plain(), &[CLASSIC, ON], |wire| {
        leave_slow_start(wire);
        let before = wire.tcp_info().tcpi_snd_ssthresh;
        let [first, ..] = lose_first_of_three(wire);
        wire.expect(&first);
        assert!(wire.tcp_info().tcpi_snd_ssthresh < before);
        assert_eq!(wire.tcp_info().tcpi_total_retrans, 1);
        let after = wire.written() + 1;
        wire.ack(after);
        send(wire);
    });
}
