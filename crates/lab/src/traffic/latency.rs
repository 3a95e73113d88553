//! Latencies of messages: each as a record, and their distribution.

use std::time::Duration;

use hdrhistogram::Histogram;
use pillion_stats::measure::{Percentile, quantile};
use serde::{Deserialize, Serialize};

pub(crate) use pillion_bpf::host::clock::monotonic_ns as now_ns;

/// One message received.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The latency that was measured.
    pub measured: Measured,
    /// The stream's number at its sender.
    pub stream: u32,
    /// The message's number within the stream; for a round trip, the answer's.
    pub sequence: u32,
    /// The message's bytes; for a round trip, the answer's.
    pub size: u32,
    /// `CLOCK_MONOTONIC` in ns, to the microsecond, when the sending application handed the
    /// message over.
    pub sent_ns: u64,
    /// In microseconds: when the read that completed the message (or its answer) returned, minus
    /// `sent_ns`.
    pub latency_us: f64,
}

/// What a latency is the latency of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// A message, from the sender's write to the receiver's read.
    Delivery,
    /// A message and its answer, from the sender's write to the sender's read.
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
    /// Exact quantiles (nearest rank) of values in microseconds; `None` without any.
    pub fn exact(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        Self::of(count as u64, mean, |share| {
            quantile(&values, share).unwrap_or_default()
        })
    }

    /// Quantiles to three significant digits of a histogram in nanoseconds; `None` without values.
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

/// A histogram of nanoseconds up to one hour, three significant digits; what is longer counts as
/// one hour. Its memory is fixed, so that recording never allocates.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are valid")
}

// Times in the units of reports.

/// A duration in nanoseconds; the longest one that fits (584 years) stands for any longer one.
pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds as microseconds, the unit of every report.
pub(crate) fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_quantiles_are_nearest_ranks() {
        let values = (1..=1000).rev().map(f64::from).collect();
        let quantiles = Quantiles::exact(values).unwrap();
        assert_eq!((quantiles.min, quantiles.max), (1.0, 1000.0));
        assert_eq!((quantiles.p50, quantiles.p97), (500.0, 970.0));
        assert_eq!((quantiles.p99_9, quantiles.mean), (999.0, 500.5));
        assert_eq!(Quantiles::exact(Vec::new()), None);
    }

    #[test]
    fn histogram_agrees_with_exact_quantiles_to_a_thousandth() {
        let mut histogram = histogram();
        (1..=100_000u64).for_each(|i| histogram.saturating_record(i * 1000));
        let rough = Quantiles::of_histogram(&histogram).unwrap();
        let exact = Quantiles::exact((1..=100_000).map(f64::from).collect()).unwrap();
        for (rough, exact) in [
            (rough.p50, exact.p50),
            (rough.p97, exact.p97),
            (rough.p99_9, exact.p99_9),
            (rough.max, exact.max),
            (rough.mean, exact.mean),
        ] {
            assert!((rough / exact - 1.0).abs() < 1e-3, "{rough} {exact}");
        }
    }
}
