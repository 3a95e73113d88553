//! Growth of a window that is not full, as before Linux 3.16 (LCN 2015, section IV.B; kernel
//! commits e114a710aa and ca8a226343 removed it).

use pillion_tests::{Setup, Wire};

use super::common::{acknowledge, leave_slow_start, plain, run, send_several};

const ON: (&str, u8) = ("tcp_cwnd_grow_unfilled", 1);

fn congestion_window(wire: &Wire) -> u32 {
    wire.tcp_info().tcpi_snd_cwnd
}

/// Reduces the window, then sends three segments in each of `rounds` RTTs. Returns the windows
/// before and after these rounds.
fn thin_stream(wire: &mut Wire, rounds: u32) -> (u32, u32) {
    leave_slow_start(wire);
    let reduced = congestion_window(wire);
    for _ in 0..rounds {
        send_several::<3>(wire);
        acknowledge(wire);
    }
    (reduced, congestion_window(wire))
}

fn setup() -> Setup {
    Setup {
        initial_window: 10,
        ..plain()
    }
}

#[test]
#[ignore = "runs in the lab kernel"]
fn thin_stream_grows_to_four_segments_above_flight() {
    run(&setup(), &[ON], |wire| {
        let (reduced, grown) = thin_stream(wire, 20);
        assert_eq!((reduced, grown), (5, 7));
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn thin_stream_does_not_grow_by_default() {
    run(&setup(), &[], |wire| {
        let (reduced, grown) = thin_stream(wire, 20);
        assert_eq!((reduced, grown), (5, 5));
    });
}

#[test]
#[ignore = "runs in the lab kernel"]
fn greedy_stream_growth_is_unchanged() {
    let growth = |sysctls: &[(&str, u8)]| {
        let grown = std::sync::Mutex::new(0);
        run(&setup(), sysctls, |wire| {
            leave_slow_start(wire);
            for _ in 0..10 {
                for _ in 0..congestion_window(wire) {
                    send_several::<1>(wire);
                }
                acknowledge(wire);
            }
            *grown.lock().expect("no panic before") = congestion_window(wire);
        });
        grown.into_inner().expect("no panic before")
    };
    assert_eq!(growth(&[ON]), growth(&[]));
}
