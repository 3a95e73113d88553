//! Times as this crate reckons with them.

use std::time::Duration;

pub(crate) use pillion_bpf::host::clock::monotonic_ns as now_ns;

/// A duration in nanoseconds; the longest one that fits (584 years) stands for any longer one.
pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds as microseconds, the unit of every report.
pub(crate) fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}
