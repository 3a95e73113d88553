//! RFC 5348, section 3.1, and the header penalty of RFC 4828, section 3.

use pillion_tests::tfrc::{EVERY_PACKET, Sent, less_headers, rate};
use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64;

/// The relative error that is allowed, beside one byte per second by each of two roundings.
const BOUND: f64 = 1e-3;

/// The equation of the RFC, with b = 1 and `t_RTO` = 4 R; p from 0 to 1, R in seconds.
fn reference(p: f64, rtt: f64) -> f64 {
    let time_outs = 3.0 * (3.0 * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p);
    1460.0 / (rtt * (2.0 * p / 3.0).sqrt() + 4.0 * rtt * time_outs)
}

fn fixed(p: f64) -> u64 {
    (p * EVERY_PACKET as f64).round() as u64
}

/// So many values, evenly spaced in their logarithms.
fn spaced(from: f64, to: f64, count: u32) -> impl Iterator<Item = f64> + Clone {
    let step = (to / from).ln() / f64::from(count - 1);
    (0..count).map(move |i| (from * (step * f64::from(i)).exp()).min(to))
}

#[track_caller]
fn assert_near(seen: f64, expected: f64, what: &str) {
    let error = (seen - expected).abs();
    assert!(
        error <= BOUND * expected + 2.0,
        "{what}: {seen}, not {expected}"
    );
}

fn check(p: f64, rtt_us: f64, payload: u32, header: u32) {
    let what = format!("p = {p}, R = {rtt_us} us, {payload} + {header} bytes");
    let expected = reference(p, rtt_us.round() / 1e6);
    let seen = rate(fixed(p), rtt_us.round() as u64);
    assert_near(seen as f64, expected, &what);
    let sent = Sent {
        packets: 1,
        payload,
        wire: payload + header,
    };
    let share = f64::from(payload) / f64::from(sent.wire);
    let expected = expected.min(f64::from(u32::MAX)) * share;
    assert_near(less_headers(seen, sent) as f64, expected, &what);
}

#[test]
fn the_rate_is_that_of_the_rfcs_on_a_grid() {
    for p in spaced(1e-6, 1.0, 200) {
        for rtt in spaced(100.0, 10e6, 100) {
            for payload in spaced(1.0, 2047.0, 12) {
                for header in [40, 52, 60, 72] {
                    check(p, rtt, payload.round() as u32, header);
                }
            }
        }
    }
}

#[test]
fn the_rate_is_that_of_the_rfcs_at_random_points() {
    let mut rng = Pcg64::seed_from_u64(1);
    let mut log = |from: f64, to: f64| (rng.random_range(from.ln()..=to.ln())).exp();
    for _ in 0..500_000 {
        let (p, rtt, payload) = (log(1e-6, 1.0), log(100.0, 10e6), log(1.0, 65_000.0));
        check(p.min(1.0), rtt, payload as u32, log(40.0, 120.0) as u32);
    }
}

#[test]
fn the_rate_never_rises_with_losses_or_rtt() {
    for rtt in spaced(100.0, 10e6, 50) {
        let rates = spaced(1e-6, 1.0, 20_000).map(|p| rate(fixed(p), rtt as u64));
        assert!(rates.is_sorted_by(|a, b| a >= b), "R = {rtt} us");
    }
    for p in spaced(1e-6, 1.0, 50) {
        let rates = spaced(100.0, 10e6, 20_000).map(|rtt| rate(fixed(p), rtt as u64));
        assert!(rates.is_sorted_by(|a, b| a >= b), "p = {p}");
    }
    // Where neighbours differ by one unit.
    let rates = (1..200_000).map(|p| rate(p, 100));
    assert!(rates.is_sorted_by(|a, b| a >= b));
}

#[test]
fn values_out_of_range_count_as_the_nearest() {
    assert_eq!(rate(0, 1000), rate(1, 1000));
    assert_eq!(rate(u64::MAX, 1000), rate(EVERY_PACKET, 1000));
    assert_eq!(rate(1000, 0), rate(1000, 1));
    assert_eq!(rate(1000, u64::MAX), rate(1000, (1 << 24) - 1));
    assert_eq!(rate(EVERY_PACKET, u64::MAX), 0);
    let nothing = Sent::default();
    assert_eq!(less_headers(1000, nothing), 1000);
    assert_eq!(less_headers(u64::MAX, nothing), u64::from(u32::MAX));
    let most = Sent {
        packets: u32::MAX,
        payload: u32::MAX,
        wire: u32::MAX,
    };
    assert_eq!(less_headers(u64::MAX, most), u64::from(u32::MAX));
}
