use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;

const SECOND: i64 = 1_000_000_000;

/// A packet each 10 ms for 300 s, 75 ms on the way and a queue of mostly some milliseconds,
/// the receiver's clock ahead by so much and faster by so many parts per million; there with sign
/// 1, back with sign -1.
fn noisy(ahead_ns: f64, ppm: f64, seed: u64, sign: f64) -> Minima {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut minima = Minima::default();
    for packet in 0..30_000 {
        let at_ns = packet * SECOND / 100;
        let queue_ms = -3.0 * f64::ln(random.random_range(f64::MIN_POSITIVE..1.0));
        let ahead_ns = ahead_ns + at_ns as f64 * ppm / 1e6;
        let sent_ns = if sign > 0.0 { 0.0 } else { ahead_ns };
        minima.add(Point {
            at_ns: at_ns + sent_ns as i64,
            delay_ns: (75e6 + queue_ms * 1e6 + sign * ahead_ns) as i64,
        });
    }
    minima
}

#[test]
fn drift_is_found_below_queueing_noise() {
    for (seed, ppm) in [(1, 100.0), (2, -100.0), (3, 0.0), (4, 17.0)] {
        let (there, back) = (noisy(5e9, ppm, seed, 1.0), noisy(5e9, ppm, seed + 50, -1.0));
        let clock = Clock::of(&there, &back, false);
        let found = clock.drift_ppm().unwrap();
        assert!((found - ppm).abs() < 0.5, "{found} ppm instead of {ppm}");
        let offset = clock.offset_ns(0).unwrap();
        assert!((offset - 5e9).abs() < 0.1e6, "ahead by {offset} ns");
        let round_trip = clock.round_trip_ns(100 * SECOND).unwrap();
        assert!((round_trip - 150e6).abs() < 0.2e6, "{round_trip} ns");
        let raw_delay_ns = (80e6 + 5e9 + 100e9 * ppm / 1e6) as i64;
        let one_way = clock.one_way_ns(PathDirection::ToReceiver, 100 * SECOND, raw_delay_ns);
        assert!((one_way.unwrap() - 80e6).abs() < 0.2e6, "{one_way:?}");
    }
}

#[test]
fn a_clock_that_is_decades_off_and_drifts_tells_the_same_delays() {
    for (ahead_ns, ppm) in [
        (-1.7e18, -300.0),
        (-1.7e18, 50.0),
        (1e18, -900.0),
        (8.64e13, 300.0),
    ] {
        let ways = [(5, 1.0), (6, -1.0)].map(|(seed, sign)| noisy(ahead_ns, ppm, seed, sign));
        let clock = Clock::of(&ways[0], &ways[1], false);
        let round_trip = clock.round_trip_ns(100 * SECOND).unwrap();
        assert!((round_trip - 150e6).abs() < 0.2e6, "{round_trip} ns");
        let offset = clock.offset_ns(100 * SECOND).unwrap() - ahead_ns;
        assert!((offset - 100e9 * ppm / 1e6).abs() < 0.1e6, "{offset} ns");
        let drift = clock.drift_ppm().unwrap();
        assert!((drift - ppm).abs() < 0.5, "{drift} ppm");
    }
}

#[test]
fn a_queue_at_the_beginning_does_not_tilt_the_hull() {
    let mut minima = Minima::default();
    for packet in 0..30_000_i64 {
        let at_ns = packet * SECOND / 100;
        let queue_ns = if packet < 1_000 {
            40_000_000
        } else {
            packet % 7 * 1_000_000
        };
        minima.add(Point {
            at_ns,
            delay_ns: 75_000_000 + queue_ns + at_ns / 20_000,
        });
    }
    let hull = Clock::of(&minima, &Minima::default(), false).there.unwrap();
    assert!((hull.slope * 1e6 - 50.0).abs() < 0.5, "{hull:?}");
    let variation = 115e6 - hull.at(0);
    assert!((variation - 40e6).abs() < 0.1e6, "{variation}");
}

#[test]
fn one_clock_has_neither_offset_nor_drift() {
    let (there, back) = (noisy(5e9, 0.0, 1, 1.0), noisy(5e9, 0.0, 2, -1.0));
    let clock = Clock::of(&there, &back, true);
    assert_eq!(
        (clock.drift_ppm(), clock.offset_ns(SECOND)),
        (Some(0.0), Some(0.0))
    );
    let hull = clock.there.unwrap();
    assert_eq!(
        (
            hull.slope,
            clock.one_way_ns(PathDirection::ToReceiver, 7, 99)
        ),
        (0.0, Some(99.0))
    );
    assert!(
        hull.delay_ns >= 5_075e6 && hull.delay_ns < 5_075.1e6,
        "{hull:?}"
    );
}

/// So many packets in so many milliseconds, with queues; there with sign 1, back with sign -1.
fn short(packets: i64, span_ms: i64, seed: u64) -> Minima {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut raw = Minima::default();
    for packet in 0..packets {
        raw.add(Point {
            at_ns: packet * span_ms * 1_000_000 / packets,
            delay_ns: 75_000_000 + random.random_range(0..60_000_000),
        });
    }
    raw
}

#[test]
fn what_cannot_be_told_of_drift_is_taken_for_none() {
    for seed in 0..50 {
        let (there, back) = (short(30, 2000, seed), short(30, 2000, seed + 50));
        let clock = Clock::of(&there, &back, false);
        assert_eq!(
            (clock.drift_ppm(), clock.drift_uncertainty),
            (Some(0.0), None)
        );
        let round_trip_ms = clock.round_trip_ns(0).unwrap() / 1e6;
        assert!(
            (150.0..170.0).contains(&round_trip_ms),
            "{round_trip_ms} ms"
        );
    }
}

#[test]
fn a_clock_that_was_set_tells_no_delays() {
    let (mut there, mut back) = (Minima::default(), Minima::default());
    for packet in 0..1000 {
        let set_ns = if packet < 500 { 0 } else { -400_000_000 };
        let at_ns = packet * SECOND;
        there.add(Point {
            at_ns,
            delay_ns: 75_000_000 + set_ns,
        });
        back.add(Point {
            at_ns,
            delay_ns: 75_000_000 - set_ns,
        });
    }
    let clock = Clock::of(&there, &back, false);
    assert_eq!(
        clock.one_way_ns(PathDirection::ToReceiver, 0, 80_000_000),
        None
    );
}
