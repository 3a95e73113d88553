//! Token bucket of the caps: never more than one second's tokens and those earned since.

use std::sync::Barrier;
use std::thread;

use pillion_tests::token_bucket::TokenBucket;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const SECOND: u64 = 1_000_000_000;

/// Takes pieces until one is refused. Returns the number of tokens taken.
fn drain(bucket: &TokenBucket, piece: u32, per_s: u64, now: u64) -> u64 {
    let taken = (0..).take_while(|_| bucket.take(piece, per_s, now)).count();
    taken as u64 * u64::from(piece)
}

#[test]
fn idle_bucket_has_tokens_of_one_second() {
    let bucket = TokenBucket::default();
    // Shortly after the start of the machine, and after a year.
    assert_eq!(drain(&bucket, 100, 1000, 2 * SECOND), 1000);
    assert!(!bucket.take(1, 1000, 2 * SECOND));
    assert_eq!(drain(&bucket, 100, 1000, 2 * SECOND + SECOND / 2), 500);
    assert_eq!(drain(&bucket, 100, 1000, 31_536_000 * SECOND), 1000);
    assert!(!TokenBucket::default().take(1001, 1000, 31_536_000 * SECOND));
}

#[test]
fn rate_of_zero_means_no_limit() {
    let bucket = TokenBucket::default();
    assert!((0..1000).all(|_| bucket.take(u32::MAX, 0, 5 * SECOND)));
    assert!(!bucket.take(2, 1, 5 * SECOND));
}

#[test]
fn tokens_taken_match_exact_bucket() {
    let mut random = Pcg64::seed_from_u64(1);
    for _ in 0..200 {
        let per_s = 10u64.pow(random.random_range(0..12)) + random.random_range(0..10);
        let max = (per_s * 2).min(6000) as u32;
        let bucket = TokenBucket::default();
        let (mut now, mut exact) = (random.random_range(2..1000) * SECOND, per_s as f64);
        for _ in 0..500 {
            let elapsed = random.random_range(0..SECOND / 4);
            now += elapsed;
            exact = (per_s as f64).min(exact + elapsed as f64 * per_s as f64 / SECOND as f64);
            let tokens = random.random_range(0..=max);
            // Each rounding costs less than 1 ns.
            let rounding = 500.0 * per_s as f64 / SECOND as f64 + 1e-6 * per_s as f64;
            if bucket.take(tokens, per_s, now) {
                exact -= f64::from(tokens);
                assert!(exact > -1e-6 * per_s as f64, "{per_s} {exact}");
            } else {
                assert!(exact < f64::from(tokens) + rounding, "{per_s} {exact}");
            }
        }
    }
}

/// Threads meet at some of the buckets.
#[test]
fn processors_together_take_no_more_than_one() {
    let buckets: Vec<TokenBucket> = (0..2_000_000).map(|_| TokenBucket::default()).collect();
    let start = Barrier::new(4);
    let take = || {
        start.wait();
        let taken = buckets.iter().filter(|it| it.take(1, 1, 9 * SECOND));
        taken.count()
    };
    let taken: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads.into_iter().map(|it| it.join().unwrap()).sum()
    });
    assert_eq!(taken, buckets.len());
}
