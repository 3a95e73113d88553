//! How late frames depart.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::path::DelayError;

const LARGEST_US: u64 = 60_000_000;

/// Collects delay errors in about 20 KiB, fixed: two significant digits from 1 µs to 60 s.
pub(crate) struct Punctuality(Histogram<u64>);

impl Punctuality {
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LARGEST_US, 2);
        Self(histogram.expect("constant bounds are valid"))
    }

    pub fn record(&mut self, late: Duration) {
        let us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(us.min(LARGEST_US));
    }

    pub fn summary(&self) -> DelayError {
        DelayError {
            p50_us: self.0.value_at_quantile(0.50),
            p99_us: self.0.value_at_quantile(0.99),
            max_us: self.0.max(),
        }
    }
}
