//! The clock for all events of a host, and periodic ticks. In a lab kernel it is the virtual time
//! since its start.

use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

use crate::host::interruption::retry;

/// The time by `CLOCK_MONOTONIC`, which every Linux has.
#[must_use]
pub fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

/// The time by `CLOCK_MONOTONIC` in nanoseconds, which suffice for 584 years.
#[must_use]
pub fn monotonic_ns() -> u64 {
    monotonic().as_nanos() as u64
}

/// The time since the host started, when it slept included (`CLOCK_BOOTTIME`).
#[must_use]
pub fn since_start() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

/// Times at a fixed distance from each other, independently of the time that work takes, so that two
/// runs in virtual time are alike. Missed times are skipped.
#[derive(Debug, Clone, Copy)]
pub struct Ticks {
    interval: Duration,
    /// The time from which the others are calculated.
    origin: Duration,
    last: Duration,
}

impl Ticks {
    /// Ticks at `CLOCK_MONOTONIC`'s multiples of an interval, 1 ms at least: samples of several
    /// hosts are of the same moments.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self {
            interval: interval.max(Duration::from_millis(1)),
            origin: Duration::ZERO,
            last: monotonic(),
        }
    }

    /// Ticks at an interval that is counted from this moment, 1 ms at least.
    #[must_use]
    pub fn from_now(interval: Duration) -> Self {
        let ticks = Self::every(interval);
        Self {
            origin: ticks.last,
            ..ticks
        }
    }

    /// Advances to the next tick without waiting; returns its time in ns.
    pub fn next_ns(&mut self) -> u64 {
        let interval = self.interval.as_nanos();
        let since = self.last.max(monotonic()).saturating_sub(self.origin);
        let next = (since.as_nanos() / interval + 1) * interval + self.origin.as_nanos();
        let next = u64::try_from(next).unwrap_or(u64::MAX);
        self.last = Duration::from_nanos(next);
        next
    }

    /// Sleeps until the next tick, whose time it returns in ns.
    pub fn sleep(&mut self) -> u64 {
        let next = self.next_ns();
        let flags = ClockNanosleepFlags::TIMER_ABSTIME;
        let until = TimeSpec::from(self.last);
        let _ = retry(|| clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &until));
        next
    }
}
