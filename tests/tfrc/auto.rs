//! Level `auto`: its integer decisions, compared with floating point.

use pillion_tests::auto::{
    copies_after, copies_end, copies_start, decisions_with_copies, isolated_copies_last,
    isolated_copies_start, level, messages_in_time, messages_waiting, unused_copies_end,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Late messages of a million, as expected and as seen, with the numbers behind them.
struct Late {
    seen: f64,
    expected: f64,
    events: f64,
}

/// Segments that a level leaves unrepaired, with this many that wait behind each run.
fn late(runs: &[u16; 8], segments: f64, level: usize, waiting: f64) -> Late {
    let runs = runs.map(f64::from);
    let excess = |(i, number): (usize, &f64)| match i + 1 {
        length if length > level => ((length - level) as f64 + waiting) * number,
        _ => 0.0,
    };
    let last = runs[level - 1];
    let shorter = if level > 1 { runs[level - 2] } else { segments };
    Late {
        seen: runs.iter().enumerate().map(excess).sum(),
        expected: if shorter > 0.0 {
            last * last / shorter * (1.0 + waiting)
        } else {
            0.0
        },
        events: last,
    }
}

/// Returns random numbers of loss runs, fewer of the longer ones.
fn random_runs(random: &mut Pcg64, segments: u32) -> [u16; 8] {
    let mut runs = [0; 8];
    let mut most = segments / 4;
    for run in &mut runs {
        *run = random.random_range(0..=most) as u16;
        most = u32::from(*run) / random.random_range(1..6);
    }
    runs
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
        let runs = random_runs(&mut random, segments);
        let in_time = random.random_range(1..=8);
        let target_ppm = random.random_range(1..2_000);
        let tolerable = f64::from(segments) * f64::from(target_ppm) / 1e6;
        let late = late(&runs, f64::from(segments), in_time, 0.0);
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
fn level_is_lowest_that_meets_target() {
    let mut random = Pcg64::seed_from_u64(1);
    let mut counts = [0; 8];
    for _ in 0..100_000 {
        let segments = random.random_range(64..1024);
        let runs = random_runs(&mut random, segments);
        let waiting = random.random_range(0..=64);
        let target_ppm = random.random_range(1..20_000);
        let tolerable = f64::from(segments) * f64::from(target_ppm) / 1e6;
        let late = |level| {
            let late = late(&runs, f64::from(segments), level, f64::from(waiting));
            late.seen.max(late.expected)
        };
        // The integers have 1/1024 segment.
        if (1..=8).any(|level| (late(level) - tolerable).abs() < 0.1) {
            continue;
        }
        let reference = (1..8).find(|&level| late(level) <= tolerable).unwrap_or(8);
        let decision = level(runs, segments, target_ppm, waiting);
        assert_eq!(
            decision, reference as i32,
            "{runs:?} {segments} {target_ppm} {waiting}"
        );
        counts[reference - 1] += 1;
    }
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
}

/// At 2 % loss, one run of two is lost in 2,500 segments. It delays all that are sent until the
/// retransmission.
#[test]
fn level_rises_where_messages_wait() {
    let runs = [20, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        level(runs, 1000, 1000, messages_waiting(200_000, 150_000)),
        1
    );
    assert_eq!(
        level(runs, 1000, 1000, messages_waiting(30_000, 150_000)),
        2
    );
    assert_eq!(messages_waiting(30_000, 150_000), 5);
    assert_eq!(messages_waiting(1, 150_000), 64);
    assert_eq!(messages_waiting(0, 150_000), 0, "unknown");
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
}

/// 2.2 % of lost segments is the root of half the target.
#[test]
fn unused_copies_end_by_loss_rate_of_segments() {
    assert!(unused_copies_end([20, 0, 0, 0, 0, 0, 0, 0], 1000, 1, 1000));
    assert!(!unused_copies_end([20, 2, 0, 0, 0, 0, 0, 0], 1000, 1, 1000));
    assert!(!unused_copies_end([1, 0, 0, 0, 0, 0, 0, 0], 1000, 0, 1000));
    assert!(unused_copies_end([0; 8], 1000, 0, 1000));
}

#[test]
fn copies_start_at_low_loss_if_deadline_is_below_itt() {
    assert!(copies_start([20, 0, 0, 0, 0, 0, 0, 0], 1000, 0, 1000));
    assert!(!copies_start([2, 0, 0, 0, 0, 0, 0, 0], 1000, 0, 1000));
}

#[test]
fn one_loss_starts_copies_of_isolated_segments() {
    assert!(isolated_copies_start([1, 0, 0, 0, 0, 0, 0, 0], 20, 1000));
    assert!(!copies_start([1, 0, 0, 0, 0, 0, 0, 0], 20, 0, 1000));
}

#[test]
fn queue_ends_copies_of_all_segments() {
    let lossy = [81, 8, 1, 0, 0, 0, 0, 0];
    for itt_us in [30_000, 300_000] {
        assert_eq!(copies_after(2, true, lossy, itt_us, 150_000), 1);
    }
    assert_eq!(copies_after(2, false, lossy, 30_000, 150_000), 2);
}

/// Delayed ACKs of isolated segments look like a queue.
#[test]
fn apparent_queue_does_not_delay_copies_of_isolated_segments() {
    let lossy = [2, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(copies_after(0, true, lossy, 300_000, 150_000), 1);
    assert_eq!(copies_after(0, true, lossy, 30_000, 150_000), 0);
}

#[test]
fn isolated_copies_end_only_if_bundles_are_too_late() {
    assert!(isolated_copies_last(90_000, 50_000));
    assert!(!isolated_copies_last(300_000, 50_000));
}

#[test]
fn each_start_doubles_how_long_copies_hold() {
    let decisions: Vec<_> = (1..=6).map(decisions_with_copies).collect();
    assert_eq!(decisions, [16, 32, 64, 128, 128, 128]);
}

#[test]
fn deadline_determines_useful_bundles() {
    assert_eq!(messages_in_time(0, 30_000), 1);
    assert_eq!(messages_in_time(100, 30_000), 3);
    assert_eq!(messages_in_time(5, 30_000), 0);
    // The default is at most 105 ms.
    assert_eq!(messages_in_time(0, 105_000), 1);
    assert_eq!(messages_in_time(0, 106_000), 0);
    assert_eq!(messages_in_time(500, 200_000), 2);
    assert_eq!(messages_in_time(0, 0), 1, "unknown");
}
