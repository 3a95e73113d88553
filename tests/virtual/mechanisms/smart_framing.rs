//! TCP smart framing (Mellia, Meo, Casetti, 2005; section 2.6.1 of the thesis).

use pillion_tests::{Setup, Wire};

use super::common::{RTT, leave_slow_start, plain, run, send_several};

const ON: (&str, u8) = ("tcp_smart_framing", 1);

fn window(segments: u32) -> Setup {
    Setup {
        initial_window: segments,
        ..plain()
    }
}

fn congestion_window(wire: &Wire) -> u32 {
    wire.tcp_info().tcpi_snd_cwnd
}

#[test]
#[ignore = "runs in the lab kernel"]
fn window_below_four_segments_is_split_into_four() {
    run(&window(1), &[ON], |wire| {
        wire.write(1460);
        wire.expect("1:366 366:731 731:1096 1096:1461");
    });
    run(&window(2), &[ON], |wire| {
        wire.write(2 * 1460);
        wire.expect("1:731 731:1461 1461:2191 2191:2921");
    });
    run(&window(3), &[ON], |wire| {
        wire.write(3 * 1460);
        wire.expect("1:1096 1096:2191 2191:3286 3286:4381");
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn is_off_by_default() {
    run(&window(1), &[], |wire| {
        wire.write(2 * 1460);
        wire.expect("1:1461");
        wire.expect_nothing(RTT);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn sends_at_most_one_window_in_bytes() {
    run(&window(1), &[ON], |wire| {
        wire.write(2 * 1460);
        wire.expect("1:366 366:731 731:1096 1096:1461");
        wire.expect_nothing(RTT);
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn window_of_four_segments_is_not_split() {
    run(&window(4), &[ON], |wire| {
        wire.write(4 * 1460);
        wire.expect("1:1461 1461:2921 2921:4381 4381:5841");
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn window_grows_by_bytes_up_to_four_segments() {
    run(&window(1), &[ON], |wire| {
        wire.write(1460);
        wire.expect("1:366 366:731 731:1096 1096:1461");
        // Each ACK covers a quarter of a segment.
        for position in [366, 731, 1096] {
            wire.ack(position);
            assert_eq!(congestion_window(wire), 1);
        }
        wire.ack(1461);
        assert_eq!(congestion_window(wire), 2);
        wire.write(2 * 1460);
        wire.expect("1461:2191 2191:2921 2921:3651 3651:4381");
        wire.ack(4381);
        assert_eq!(congestion_window(wire), 4);
        wire.write(2 * 1460);
        wire.expect("4381:5841 5841:7301");
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn thin_stream_may_have_four_small_segments_in_flight() {
    run(&window(2), &[ON], |wire| {
        send_several::<4>(wire);
        wire.write(100);
        wire.expect_nothing(RTT);
        wire.ack(401);
        wire.expect("401:501");
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn splits_window_after_congestion() {
    run(&window(5), &[ON], |wire| {
        leave_slow_start(wire);
        assert_eq!(congestion_window(wire), 2);
        wire.write(1460);
        wire.expect("201:931 931:1661");
    });
}
