//! Level `auto`: its integer decisions, compared with floating point.

use pillion_tests::auto::{copies_end, copies_start, messages_in_time};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Late messages of a million, as expected and as seen, with the numbers behind them.
struct Late {
    seen: f64,
    expected: f64,
    events: f64,
}

fn late(runs: &[u16; 8], segments: f64, in_time: usize) -> Late {
    let runs = runs.map(f64::from);
    let beyond = |length: usize| -> f64 {
        let excess =
            |(i, number): (usize, &f64)| (i as f64 + 1.0 - length as f64).max(0.0) * number;
        runs.iter().enumerate().map(excess).sum()
    };
    let last = runs[in_time - 1];
    let shorter = if in_time > 1 {
        runs[in_time - 2]
    } else {
        segments
    };
    Late {
        seen: beyond(in_time),
        expected: if shorter > 0.0 {
            last * last / shorter
        } else {
            0.0
        },
        events: last,
    }
}

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-4 * a.max(b).max(1e-9)
}

#[test]
fn copies_start_as_in_floating_point() {
    let mut random = Pcg64::seed_from_u64(1);
    let mut starts = 0;
    for _ in 0..100_000 {
        let segments = random.random_range(64..1024);
        let mut runs = [0; 8];
        let mut most = segments / 4;
        for run in &mut runs {
            *run = random.random_range(0..=most) as u16;
            most = u32::from(*run) / random.random_range(1..6);
        }
        let in_time = random.random_range(1..=8);
        let target_ppm = random.random_range(1..2_000);
        let tolerable = f64::from(segments) * f64::from(target_ppm) / 1e6;
        let late = late(&runs, f64::from(segments), in_time);
        if is_close(late.seen, 4.0 * tolerable) || is_close(late.expected, 2.0 * tolerable) {
            continue;
        }
        let reference = late.seen >= 3.0 && late.seen > 4.0 * tolerable
            || late.events >= 6.0 && late.expected > 2.0 * tolerable;
        let decision = copies_start(runs, segments, in_time as u32, target_ppm);
        assert_eq!(
            decision, reference,
            "{runs:?} {segments} {in_time} {target_ppm}"
        );
        starts += u32::from(decision);
    }
    assert!((5_000..95_000).contains(&starts), "{starts}");
}

#[test]
fn copies_end_as_in_floating_point() {
    let mut random = Pcg64::seed_from_u64(1);
    let mut ends = 0;
    for _ in 0..100_000 {
        let expected: u32 = random.random_range(64..32_768);
        let received = expected - random.random_range(0..=expected / 8);
        let in_time = random.random_range(0..3);
        let target_ppm = random.random_range(1..20_000);
        // One report, of 64 units, is on its way.
        let missing = (expected - received).saturating_sub(64);
        let loss = f64::from(missing) / 2.0 / f64::from(expected);
        let late = if in_time > 0 { loss * loss } else { loss } * 1e6;
        // The integers have 1 ppm.
        if (late * 2.0 - f64::from(target_ppm)).abs() < 3.0 {
            continue;
        }
        let decision = copies_end(expected, received, in_time, target_ppm);
        assert_eq!(
            decision,
            late * 2.0 < f64::from(target_ppm),
            "{expected} {received}"
        );
        ends += u32::from(decision);
    }
    assert!((10_000..90_000).contains(&ends), "{ends}");
}

/// At 2 % loss bundles suffice for a target of 0.1 %, at 10 % they do not.
#[test]
fn copies_start_at_high_loss_only() {
    assert!(!copies_start([20, 0, 0, 0, 0, 0, 0, 0], 1000, 1, 1000));
    assert!(copies_start([81, 8, 1, 0, 0, 0, 0, 0], 1000, 1, 1000));
    // One loss is enough where no bundle is in time.
    assert!(copies_start([1, 0, 0, 0, 0, 0, 0, 0], 20, 0, 1000));
}

#[test]
fn deadline_determines_useful_bundles() {
    assert_eq!(messages_in_time(0, 30_000, 150_000), 1);
    assert_eq!(messages_in_time(100, 30_000, 150_000), 3);
    assert_eq!(messages_in_time(5, 30_000, 150_000), 0);
    // The next message is more than an RTT away.
    assert_eq!(messages_in_time(0, 300_000, 150_000), 0);
    assert_eq!(messages_in_time(0, 0, 150_000), 1, "unknown");
}
