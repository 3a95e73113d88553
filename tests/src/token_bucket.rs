//! The token bucket of caps (`bpf/bundler/policy/token_bucket.h`), compiled for this machine.

use std::sync::atomic::AtomicU64;

mod c {
    use super::AtomicU64;

    // SAFETY: the signature matches token_bucket.c, which accesses the word atomically.
    unsafe extern "C" {
        pub safe fn pillion_take_tokens(
            earned_ns: &AtomicU64,
            tokens: u32,
            per_s: u64,
            now_ns: u64,
        ) -> i32;
    }
}

/// Bucket that several threads may use.
#[derive(Debug, Default)]
pub struct TokenBucket(AtomicU64);

impl TokenBucket {
    /// Takes the tokens if there are enough, and returns whether there were.
    #[must_use]
    pub fn take(&self, tokens: u32, per_s: u64, now_ns: u64) -> bool {
        c::pillion_take_tokens(&self.0, tokens, per_s, now_ns) != 0
    }
}
