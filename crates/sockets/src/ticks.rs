use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// Fixed times: `CLOCK_MONOTONIC`'s multiples of an interval, so that samples of several hosts,
/// and of two runs in virtual time, are of the same moments. One that was missed is left out.
#[derive(Debug, Clone, Copy)]
pub struct Ticks {
    interval: Duration,
    last: Duration,
}

impl Ticks {
    /// An interval of 1 ms at least.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self {
            interval: interval.max(Duration::from_millis(1)),
            last: now(),
        }
    }

    /// Sleeps until the next one, which it returns in ns; a signal's handler may end it early.
    pub fn sleep(&mut self) -> u64 {
        let interval = self.interval.as_nanos();
        let after = self.last.max(now()).as_nanos() / interval + 1;
        let next = u64::try_from(after * interval).unwrap_or(u64::MAX);
        self.last = Duration::from_nanos(next);
        let flags = ClockNanosleepFlags::TIMER_ABSTIME;
        let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &TimeSpec::from(self.last));
        next
    }
}

fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}
