//! Latencies of messages: records and distributions.

use std::time::Duration;

use hdrhistogram::Histogram;
use pillion_stats::measure::{Percentile, quantile};
use serde::{Deserialize, Serialize};

pub(crate) use pillion_bpf::host::clock::monotonic_ns as now_ns;

/// The latency of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The interval that the latency covers.
    pub measured: LatencyKind,
    /// The stream's number at its sender.
    pub stream: u32,
    /// The message's number within the stream; for a round trip, the response's.
    pub sequence: u32,
    /// The message's bytes; for a round trip, the response's.
    pub size: u32,
    /// Time when the sending application wrote the message, `CLOCK_MONOTONIC` in ns, rounded to
    /// microseconds.
    pub sent_ns: u64,
    /// Microseconds from `sent_ns` to the end of the read that completed the message or its
    /// response.
    pub latency_us: f64,
}

/// The interval that a latency covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LatencyKind {
    /// A message, from the sender's write to the receiver's read.
    Delivery,
    /// A message and its response, from the sender's write to the sender's read.
    RoundTrip,
}

/// A distribution of times in microseconds. `p97` is the value that 97 % do not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Number of values.
    pub count: u64,
    /// Smallest value.
    pub min: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90 % quantile.
    pub p90: f64,
    /// 97 % quantile.
    pub p97: f64,
    /// 99 % quantile.
    pub p99: f64,
    /// 99.9 % quantile.
    pub p99_9: f64,
    /// Largest value.
    pub max: f64,
}

impl Quantiles {
    /// Returns exact quantiles (nearest rank) of values in microseconds; `None` without values.
    pub fn exact(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        Self::of(count as u64, mean, |share| {
            quantile(&values, share).unwrap_or_default()
        })
    }

    /// Returns quantiles with three significant digits of a histogram in nanoseconds; `None`
    /// without values.
    pub(crate) fn of_histogram(histogram: &Histogram<u64>) -> Option<Self> {
        Self::of(histogram.len(), histogram.mean() / 1e3, |share| {
            us(histogram.value_at_quantile(share))
        })
    }

    fn of(count: u64, mean: f64, at: impl Fn(f64) -> f64) -> Option<Self> {
        (count > 0).then(|| Self {
            count,
            min: at(0.0),
            mean,
            p50: at(Percentile::P50.share),
            p90: at(Percentile::P90.share),
            p97: at(Percentile::P97.share),
            p99: at(Percentile::P99.share),
            p99_9: at(Percentile::P99_9.share),
            max: at(Percentile::MAX.share),
        })
    }
}

/// Creates a histogram of nanoseconds up to one hour with three significant digits; longer times
/// count as one hour. Its memory is constant, so recording does not allocate.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are valid")
}

// Conversions to the units of reports.

/// Returns a duration in nanoseconds, at most 584 years.
pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts nanoseconds to microseconds, the unit of all reports.
pub(crate) fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_quantiles_use_nearest_rank() {
        let values = (1..=1000).rev().map(f64::from).collect();
        let quantiles = Quantiles::exact(values).unwrap();
        assert_eq!((quantiles.min, quantiles.max), (1.0, 1000.0));
        assert_eq!((quantiles.p50, quantiles.p97), (500.0, 970.0));
        assert_eq!((quantiles.p99_9, quantiles.mean), (999.0, 500.5));
        assert_eq!(Quantiles::exact(Vec::new()), None);
    }

    #[test]
    fn histogram_quantiles_are_within_one_thousandth() {
        let mut histogram = histogram();
        (1..=100_000u64).for_each(|i| histogram.saturating_record(i * 1000));
        let approximate = Quantiles::of_histogram(&histogram).unwrap();
        let exact = Quantiles::exact((1..=100_000).map(f64::from).collect()).unwrap();
        for (approximate, exact) in [
            (approximate.p50, exact.p50),
            (approximate.p97, exact.p97),
            (approximate.p99_9, exact.p99_9),
            (approximate.max, exact.max),
            (approximate.mean, exact.mean),
        ] {
            assert!(
                (approximate / exact - 1.0).abs() < 1e-3,
                "{approximate} {exact}"
            );
        }
    }
}
