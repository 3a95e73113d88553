//! Sending rate over the last second, or over the last RTT if that is longer.

use pillion_tests::tfrc::{Sending, Sent};

const SECOND: u64 = 1_000_000;
const PACKET: Sent = Sent {
    packets: 1,
    payload: 120,
    wire: 172,
};

/// Sends a packet every `itt`, from `from` until before `until`. Returns the state.
fn steady(itt: u64, from: u64, until: u64, rtt: u64) -> Sending {
    let mut sending = Sending::default();
    for now in (from..until).step_by(itt as usize) {
        sending.note(now, rtt, PACKET);
    }
    sending
}

#[test]
fn steady_stream_has_constant_rate() {
    for rtt in [0, 150_000, 1_700_000] {
        for end in (5 * SECOND..9 * SECOND).step_by(30_000) {
            let rate = steady(30_000, SECOND, end, rtt).rate(end, rtt);
            assert!((32..=34).contains(&rate.packets), "{rate:?} at {end}");
            let expected = 172.0 / 0.03;
            assert!((f64::from(rate.wire) - expected).abs() < 0.04 * expected);
            assert!((f64::from(rate.payload) - 4000.0).abs() < 160.0);
        }
    }
}

#[test]
fn packet_every_10_ms_is_at_most_100_per_second() {
    for end in (5 * SECOND..8 * SECOND).step_by(10_000) {
        let sending = steady(10_000, SECOND, end, 0);
        assert!(sending.rate(end, 0).packets <= 100);
        assert!(sending.rate(end - 5_000, 0).packets <= 100);
    }
}

#[test]
fn whole_window_counts_at_start() {
    let rate = steady(1000, 7 * SECOND, 7 * SECOND + 3000, 0).rate(7 * SECOND + 3000, 0);
    assert_eq!((rate.packets, rate.wire), (3, 3 * 172));
}

#[test]
fn limit_holds_from_start_for_any_rtt() {
    for rtt in [0, 150_000, 3 * SECOND] {
        let start = 100 * SECOND;
        for end in (start + 30_000..start + 9 * SECOND).step_by(30_000) {
            let sending = steady(30_000, start, end, rtt);
            assert!(sending.exceeds(end, rtt, 5000), "RTT {rtt} at {end}");
            let limit = 2 * 172 * SECOND / 30_000;
            assert!(!sending.exceeds(end, rtt, limit), "RTT {rtt} at {end}");
        }
    }
}

#[test]
fn burst_is_forgotten_within_two_seconds() {
    let sending = steady(1000, SECOND, SECOND + 100_000, 0);
    assert_eq!(sending.rate(SECOND + 900_000, 0).packets, 100);
    assert_eq!(sending.rate(2 * SECOND + 500_000, 0).packets, 50);
    assert_eq!(sending.rate(3 * SECOND, 0), Sent::default());
}

#[test]
fn maximum_values_do_not_overflow() {
    let max = Sent {
        packets: u32::MAX,
        payload: u32::MAX,
        wire: u32::MAX,
    };
    for rtt in [0, SECOND, u64::from(u32::MAX)] {
        let mut sending = Sending::default();
        sending.note(SECOND, rtt, max);
        let rate = sending.rate(SECOND, rtt);
        assert!(rate.wire > 0 && rate.wire == rate.payload, "{rate:?}");
        assert_eq!(sending.rate(u64::MAX / 2, rtt), Sent::default());
    }
}
