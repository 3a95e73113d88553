//! Measures and their statistics.
//!
//! * [`Measure`]: name, label, unit, meaning and accessor.
//! * [`Percentile`]: the percentiles that reports show.
//! * [`nearest_rank`], [`quantile`]: quantiles of sorted values.
//! * [`share`]: ratio of a part to the whole.
//! * [`mean_with_interval`]: mean over runs with its interval by Student's t.
//! * [`bootstrap_interval`], [`bootstrap_tail`]: interval from resampled values.
//! * [`Distribution`]: times and sizes in bounded memory.
//! * [`thinned`]: a cumulative distribution in few points.

mod distribution;
mod inference;

use serde::{Serialize, Serializer};

pub use distribution::{Distribution, Moments};
pub use inference::{bootstrap_interval, bootstrap_tail, mean_with_interval, normal_deviations};

/// A measure: the single source of its name, label, unit and meaning.
#[derive(Debug, Clone, Copy)]
pub struct Measure<F> {
    /// Name in JSON and CSV; ends with the unit.
    pub name: &'static str,
    /// Label for people.
    pub label: &'static str,
    /// The unit of the measure's values.
    pub unit: Unit,
    /// Definition, one sentence without a full stop.
    pub meaning: &'static str,
    /// Accessor of the measure's value.
    pub of: F,
}

/// The unit of a measure's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A time in milliseconds.
    Milliseconds,
    /// A size in bytes.
    Bytes,
    /// A count; the label names the counted items.
    Number,
    /// A rate in bits per second.
    BitPerSecond,
    /// A share, from 0 to 1.
    Share,
}

impl Unit {
    /// The unit's symbol after a number; empty for counts and shares.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Bytes => "B",
            Self::BitPerSecond => "bit/s",
            Self::Number | Self::Share => "",
        }
    }
}

impl<F> Measure<F> {
    /// The measure's label with its unit.
    #[must_use]
    pub fn heading(&self) -> String {
        match self.unit.symbol() {
            "" => self.label.to_owned(),
            unit => format!("{}, {unit}", self.label),
        }
    }
}

/// Serialises a measure as its name.
impl<F> Serialize for Measure<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

/// A percentile that reports show for distributions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentile {
    /// Name in JSON, as in `p99_9`.
    pub name: &'static str,
    /// Label for people, as in `p99.9`.
    pub label: &'static str,
    /// The share of values that do not exceed the percentile, from 0 to 1.
    pub share: f64,
}

impl Percentile {
    /// The median.
    pub const P50: Self = Self::new("p50", "p50", 0.5);
    /// The 90th percentile, exceeded by one value in ten.
    pub const P90: Self = Self::new("p90", "p90", 0.9);
    /// The 97th percentile, exceeded by three values in a hundred.
    pub const P97: Self = Self::new("p97", "p97", 0.97);
    /// The 99th percentile, exceeded by one value in a hundred.
    pub const P99: Self = Self::new("p99", "p99", 0.99);
    /// The 99.9th percentile, exceeded by one value in a thousand.
    pub const P99_9: Self = Self::new("p99_9", "p99.9", 0.999);
    /// The largest value.
    pub const MAX: Self = Self::new("max", "max", 1.0);

    /// The percentiles shown for latencies.
    pub const LATENCY: [Self; 6] = [
        Self::P50,
        Self::P90,
        Self::P97,
        Self::P99,
        Self::P99_9,
        Self::MAX,
    ];

    /// The percentiles shown for a complete distribution.
    pub const ALL: [Self; 11] = [
        Self::new("p1", "p1", 0.01),
        Self::new("p5", "p5", 0.05),
        Self::new("p10", "p10", 0.1),
        Self::new("p25", "p25", 0.25),
        Self::P50,
        Self::new("p75", "p75", 0.75),
        Self::P90,
        Self::new("p95", "p95", 0.95),
        Self::P97,
        Self::P99,
        Self::P99_9,
    ];

    const fn new(name: &'static str, label: &'static str, share: f64) -> Self {
        Self { name, label, share }
    }
}

/// The share of a part in the whole; `None` if the whole is 0.
#[must_use]
pub fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// The rank of the `q` quantile among `count` sorted values, 1 for the smallest. By nearest rank,
/// it is the smallest value that at least a share `q` does not exceed. `q` is limited to 0 to 1;
/// `None` without values or if `q` is NaN.
#[must_use]
pub fn nearest_rank(q: f64, count: u64) -> Option<u64> {
    if q.is_nan() || count == 0 {
        return None;
    }
    // In binary, 0.07 * 100 is 7.000000000000001; its rank must still be 7.
    let rank = q * count as f64 * (1.0 - 4.0 * f64::EPSILON);
    Some((rank.ceil() as u64).clamp(1, count))
}

/// The `q` quantile of ascending values by [`nearest_rank`]; always one of the values.
#[must_use]
pub fn quantile<V: Copy>(ascending: &[V], q: f64) -> Option<V> {
    let rank = nearest_rank(q, ascending.len() as u64)?;
    ascending.get(rank as usize - 1).copied()
}

/// Maximum number of points of a curve.
const MAX_POINTS: usize = 1000;
/// Number of largest distinct values that are all included, so that the tail is exact.
const TAIL: usize = 250;
/// Cells of a linear axis from 0 to 1. Between two points, the curve's body moves by less than one
/// cell.
const LINEAR_CELLS: f64 = 400.0;
/// Cells of a log axis from 1 to 1/n, one pixel each in a figure of that height. Between two
/// points, the curve's body moves by less than one cell.
const LOG_CELLS: f64 = 350.0;

/// A step of a cumulative distribution: a distinct value and the number of values not greater.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step<V> {
    /// The value at which the distribution steps.
    pub value: V,
    /// Number of values not greater than this one, itself included.
    pub rank: u64,
}

/// The cumulative distribution of ascending values with their counts. At most 1,000 steps: the tail
/// is exact, the body is thinned below the resolution of a figure.
#[must_use]
pub fn thinned<V: Copy>(values: impl IntoIterator<Item = (V, u64)>) -> Vec<Step<V>> {
    let mut rank = 0;
    let steps = values.into_iter().map(|(value, times)| {
        rank += times;
        Step { value, rank }
    });
    let steps: Vec<Step<V>> = steps.collect();
    if steps.len() < MAX_POINTS {
        return steps;
    }
    // Each cell includes its first step, not its last, so that a large step does not move.
    let (body, n) = (steps.len() - TAIL, rank as f64);
    let mut previous = None;
    let mut stored = Vec::with_capacity(MAX_POINTS);
    for (index, step) in steps.into_iter().enumerate() {
        let rank = step.rank as f64;
        let cell = (
            (rank / n * LINEAR_CELLS) as usize,
            ((n / (n - rank)).ln() / n.ln() * LOG_CELLS) as usize,
        );
        if index >= body || previous != Some(cell) {
            stored.push(step);
        }
        previous = Some(cell);
    }
    stored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_names_and_labels_contain_the_share() {
        for percentile in Percentile::ALL {
            let percent = (percentile.share * 1000.0).round() / 10.0;
            assert_eq!(percentile.label, format!("p{percent}"));
            assert_eq!(percentile.name, percentile.label.replace('.', "_"));
        }
    }

    #[test]
    fn nearest_rank_is_the_first_that_reaches_the_share() {
        for rank in 1..=100 {
            assert_eq!(nearest_rank(rank as f64 / 100.0, 100), Some(rank));
        }
        assert_eq!(nearest_rank(0.501, 100), Some(51));
        let limited = [nearest_rank(-1.0, 100), nearest_rank(7.0, 100)];
        assert_eq!(limited, [Some(1), Some(100)]);
        assert_eq!(
            (nearest_rank(f64::NAN, 9), nearest_rank(0.5, 0)),
            (None, None)
        );
    }

    #[test]
    fn quantile_is_the_value_at_nearest_rank() {
        let quantiles = [0.0, 0.5, 0.51, 1.0].map(|q| quantile(&[1, 3, 5, 9], q));
        assert_eq!(quantiles, [1, 3, 5, 9].map(Some));
        assert_eq!(quantile::<u64>(&[], 0.5), None);
    }

    #[test]
    fn thinned_keeps_all_of_few_values() {
        let steps = thinned([(10, 2), (20, 1), (30, 1)]);
        let steps: Vec<_> = steps.into_iter().map(|it| (it.value, it.rank)).collect();
        assert_eq!(steps, [(10, 2), (20, 3), (30, 4)]);
        assert!(thinned::<u64>([]).is_empty());
    }

    #[test]
    fn thinned_keeps_exact_tail_of_many_values() {
        const COUNT: u64 = 1_000_000;
        let steps = thinned((1..=COUNT).map(|value| (value, 1)));
        assert!(steps.len() <= MAX_POINTS, "{} points", steps.len());
        assert!(steps.iter().all(|step| step.rank == step.value));
        let tail = steps[steps.len() - TAIL..].iter().map(|step| step.value);
        assert!(tail.eq(COUNT - TAIL as u64 + 1..=COUNT));
        // Between two points the share above falls by less than two pixels on a log axis.
        let below_max = steps.windows(2).filter(|pair| pair[1].rank < COUNT);
        for pair in below_max {
            let [from, to] = [pair[0], pair[1]].map(|step| (COUNT - step.rank) as f64);
            let is_in_tail = pair[0].rank > COUNT - TAIL as u64;
            assert!(is_in_tail || (from / to).log10() / 6.0 * LOG_CELLS < 2.0);
        }
    }
}
