//! RTO restart (RFC 7765; Hurtig et al., section 2.1 of the poster).

use std::time::Duration;

use pillion_tests::{Setup, Wire, sysctl};

use super::common::{RTT, acknowledge, expect_after, plain, run, send};

/// Time between the segments of a test.
const GAP: Duration = Duration::from_millis(30);

const ON: (&str, u8) = ("tcp_rto_restart", 1);
/// Retransmissions have the original segment boundaries.
const NO_COLLAPSE: (&str, u8) = ("tcp_retrans_collapse", 0);

fn setup() -> Setup {
    Setup {
        rto_min: Duration::ZERO,
        ..plain()
    }
}

/// Returns the kernel's current RTO.
fn rto(wire: &Wire) -> Duration {
    Duration::from_micros(wire.tcp_info().tcpi_rto.into())
}

/// Sends `segments`, one every [`GAP`]. Only the first is acknowledged, after an RTT; the others are
/// lost. Returns the second.
fn lose_all_but_first(wire: &mut Wire, segments: u32) -> String {
    (0..5).for_each(|_| {
        send(wire);
        acknowledge(wire);
    });
    let first_acknowledged = wire.written() + 101;
    let mut second = String::new();
    for number in 0..segments {
        let segment = send(wire);
        if number == 1 {
            second = segment;
        }
        wire.expect_nothing(GAP);
    }
    wire.expect_nothing(RTT - GAP * segments.min(3));
    wire.ack(first_acknowledged);
    second
}

#[test]
#[ignore = "runs in the lab kernel"]
fn timer_counts_from_earliest_outstanding_segment() {
    run(&setup(), &[NO_COLLAPSE, ON], |wire| {
        let second = lose_all_but_first(wire, 3);
        let expected = rto(wire) - (RTT - GAP);
        expect_after(wire, &second, expected);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn is_off_by_default() {
    run(&setup(), &[NO_COLLAPSE], |wire| {
        let second = lose_all_but_first(wire, 3);
        let expected = rto(wire);
        expect_after(wire, &second, expected);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn four_outstanding_segments_keep_full_rto() {
    run(&setup(), &[NO_COLLAPSE, ON], |wire| {
        let second = lose_all_but_first(wire, 5);
        let expected = rto(wire);
        expect_after(wire, &second, expected);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn unsent_data_counts_as_outstanding() {
    let setup = Setup {
        mss: 1280,
        ..setup()
    };
    run(&setup, &[NO_COLLAPSE, ON], |wire| {
        send(wire);
        wire.expect_nothing(RTT);
        // Room for two full segments, and then for one.
        wire.ack_window(101, 2 * 1280);
        wire.write(5 * 1280);
        wire.expect("101:1381 1381:2661");
        wire.expect_nothing(RTT);
        wire.ack_window(1381, 1280);
        let expected = rto(wire);
        expect_after(wire, "1381:2661", expected);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn tail_loss_probe_keeps_its_timer() {
    run(&setup(), &[NO_COLLAPSE, ON], |wire| {
        sysctl("net.ipv4.tcp_early_retrans", "3");
        lose_all_but_first(wire, 3);
        let end = wire.written() + 1;
        expect_after(wire, &format!("{}:{end}", end - 100), 2 * RTT);
    });
}
