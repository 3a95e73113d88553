//! RFC 5348, section 3.1, and the header penalty of RFC 4828, section 3.

use pillion_tests::tfrc::{LOSS_RATE_ONE, Sent, rate, subtract_headers};
use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64;

/// Allowed relative error, in addition to one byte per second for each of two roundings.
const MAX_RELATIVE_ERROR: f64 = 1e-3;

/// Returns the rate of the RFC's equation in bytes per second, with b = 1 and `t_RTO` = 4 R; p is from
/// 0 to 1, R in seconds.
fn reference(p: f64, rtt: f64) -> f64 {
    let timeouts = 3.0 * (3.0 * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p);
    1460.0 / (rtt * (2.0 * p / 3.0).sqrt() + 4.0 * rtt * timeouts)
}

fn fixed(p: f64) -> u64 {
    (p * LOSS_RATE_ONE as f64).round() as u64
}

/// Returns `count` values from `from` to `to`, evenly spaced in their logarithms.
fn log_spaced(from: f64, to: f64, count: u32) -> impl Iterator<Item = f64> + Clone {
    let step = (to / from).ln() / f64::from(count - 1);
    (0..count).map(move |i| (from * (step * f64::from(i)).exp()).min(to))
}

#[track_caller]
fn assert_near(actual: f64, expected: f64, case: &str) {
    let error = (actual - expected).abs();
    assert!(
        error <= MAX_RELATIVE_ERROR * expected + 2.0,
        "{case}: {actual}, not {expected}"
    );
}

fn check(p: f64, rtt_us: f64, payload: u32, header: u32) {
    let case = format!("p = {p}, R = {rtt_us} us, {payload} + {header} bytes");
    let expected = reference(p, rtt_us.round() / 1e6);
    let actual = rate(fixed(p), rtt_us.round() as u64);
    assert_near(actual as f64, expected, &case);
    let sent = Sent {
        packets: 1,
        payload,
        wire: payload + header,
    };
    let share = f64::from(payload) / f64::from(sent.wire);
    let expected = expected.min(f64::from(u32::MAX)) * share;
    assert_near(subtract_headers(actual, sent) as f64, expected, &case);
}

#[test]
fn rate_matches_rfcs_on_grid() {
    for p in log_spaced(1e-6, 1.0, 200) {
        for rtt in log_spaced(100.0, 10e6, 100) {
            for payload in log_spaced(1.0, 2047.0, 12) {
                for header in [40, 52, 60, 72] {
                    check(p, rtt, payload.round() as u32, header);
                }
            }
        }
    }
}

#[test]
fn rate_matches_rfcs_at_random_points() {
    let mut rng = Pcg64::seed_from_u64(1);
    let mut log = |from: f64, to: f64| (rng.random_range(from.ln()..=to.ln())).exp();
    for _ in 0..500_000 {
        let (p, rtt, payload) = (log(1e-6, 1.0), log(100.0, 10e6), log(1.0, 65_000.0));
        check(p.min(1.0), rtt, payload as u32, log(40.0, 120.0) as u32);
    }
}

#[test]
fn rate_never_rises_with_losses_or_rtt() {
    for rtt in log_spaced(100.0, 10e6, 50) {
        let rates = log_spaced(1e-6, 1.0, 20_000).map(|p| rate(fixed(p), rtt as u64));
        assert!(rates.is_sorted_by(|a, b| a >= b), "R = {rtt} us");
    }
    for p in log_spaced(1e-6, 1.0, 50) {
        let rates = log_spaced(100.0, 10e6, 20_000).map(|rtt| rate(fixed(p), rtt as u64));
        assert!(rates.is_sorted_by(|a, b| a >= b), "p = {p}");
    }
    // Neighbouring values of p that differ by one unit.
    let rates = (1..200_000).map(|p| rate(p, 100));
    assert!(rates.is_sorted_by(|a, b| a >= b));
}

#[test]
fn out_of_range_values_are_clamped() {
    assert_eq!(rate(0, 1000), rate(1, 1000));
    assert_eq!(rate(u64::MAX, 1000), rate(LOSS_RATE_ONE, 1000));
    assert_eq!(rate(1000, 0), rate(1000, 1));
    assert_eq!(rate(1000, u64::MAX), rate(1000, (1 << 24) - 1));
    assert_eq!(rate(LOSS_RATE_ONE, u64::MAX), 0);
    let none_sent = Sent::default();
    assert_eq!(subtract_headers(1000, none_sent), 1000);
    assert_eq!(subtract_headers(u64::MAX, none_sent), u64::from(u32::MAX));
    let max = Sent {
        packets: u32::MAX,
        payload: u32::MAX,
        wire: u32::MAX,
    };
    assert_eq!(subtract_headers(u64::MAX, max), u64::from(u32::MAX));
}
