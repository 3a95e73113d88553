//! The clock that all that happens on a host is told by; in a lab kernel it is the virtual time since
//! its start.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

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
