//! Quantiles, CDF and complementary CDF of samples, and their figures.

use super::figure::{Axis, Figure, Line, SideAxis};
use crate::measure::{Step, quantile, thinned};

/// Sorted samples in any unit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SortedSamples {
    sorted: Vec<f64>,
}

impl SortedSamples {
    /// Sorts the samples. Non-finite values are dropped.
    pub fn new(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.retain(|v| v.is_finite());
        sorted.sort_unstable_by(f64::total_cmp);
        Self { sorted }
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The largest sample, `None` without samples.
    pub fn max(&self) -> Option<f64> {
        self.sorted.last().copied()
    }

    /// The `q` quantile by nearest rank: the smallest sample that at least a share `q` of the
    /// samples does not exceed. `q` is limited to 0 (the smallest sample) to 1 (the largest);
    /// `None` without samples or if `q` is NaN.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        quantile(&self.sorted, q)
    }

    /// The CDF as a step curve: from each point's value on, its share of the samples is not
    /// greater. Starts at share 0. At most 1,000 points: the tail is exact, the body is thinned
    /// below the resolution of a figure. Empty without samples.
    pub fn cdf(&self) -> Vec<(f64, f64)> {
        self.curve(|n, rank| rank / n)
    }

    /// The complementary CDF as a step curve: from each point's value on, its share of the samples
    /// is greater. Starts at share 1 and ends at 0; otherwise like [`Self::cdf`].
    pub fn ccdf(&self) -> Vec<(f64, f64)> {
        self.curve(|n, rank| (n - rank) / n)
    }

    fn curve(&self, share: impl Fn(f64, f64) -> f64) -> Vec<(f64, f64)> {
        let Some(&first) = self.sorted.first() else {
            return Vec::new();
        };
        let n = self.len() as f64;
        let mut points = vec![(first, share(n, 0.0))];
        let ties = self.sorted.chunk_by(|a, b| a == b);
        let values = ties.map(|ties| (ties[0], ties.len() as u64));
        let steps = thinned(values).into_iter();
        points.extend(steps.map(|Step { value, rank }| (value, share(n, rank as f64))));
        points
    }
}

const PERCENTILES: [(f64, &str); 6] = [
    (0.5, "p50"),
    (0.9, "p90"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (0.9999, "p99.99"),
    (0.99999, "p99.999"),
];

impl Figure {
    /// A figure of the complementary CDF: over each value of `quantity`, the share of greater
    /// samples. The log scale shows the tail. `y` names the share, for example "share of messages
    /// that took longer". Each line ends at its largest sample.
    pub fn ccdf(
        title: impl Into<String>,
        quantity: Axis,
        y: impl Into<String>,
        series: &[(&str, &SortedSamples)],
    ) -> Self {
        let largest = series.iter().map(|(_, d)| d.len()).max().unwrap_or(0);
        let min = (largest > 0).then(|| round_down(1.0 / largest as f64));
        let lines = series.iter().map(|(label, d)| {
            let points = d.ccdf();
            Line::step(*label, from_axis(&quantity, points, 1.0))
        });
        Self {
            title: title.into(),
            caption: String::new(),
            lines: lines.collect(),
            x: quantity,
            y: Axis {
                min,
                max: Some(1.0),
                ..Axis::log(y, "")
            },
            side: Some(percentiles(|share| 1.0 - share)),
        }
    }

    /// A figure of the CDF: over each value of `quantity`, the share of samples not greater, from 0
    /// to 1. `y` names the share, for example "share of messages that took no longer".
    pub fn cdf(
        title: impl Into<String>,
        quantity: Axis,
        y: impl Into<String>,
        series: &[(&str, &SortedSamples)],
    ) -> Self {
        let lines = series.iter().map(|(label, d)| {
            let mut points = from_axis(&quantity, d.cdf(), 0.0);
            if !points.is_empty() {
                points.push((f64::INFINITY, 1.0));
            }
            Line::step(*label, points)
        });
        Self {
            title: title.into(),
            caption: String::new(),
            lines: lines.collect(),
            x: quantity,
            y: Axis {
                min: Some(0.0),
                max: Some(1.0),
                ..Axis::linear(y, "")
            },
            side: Some(percentiles(|share| share)),
        }
    }
}

/// Extends the curve to the lower end of the axis, if the axis has one.
fn from_axis(axis: &Axis, mut points: Vec<(f64, f64)>, level: f64) -> Vec<(f64, f64)> {
    if let (Some(start), Some(&(first, _))) = (axis.min, points.first())
        && start < first
    {
        points.insert(0, (start, level));
    }
    points
}

fn percentiles(y: impl Fn(f64) -> f64) -> SideAxis {
    let ticks = PERCENTILES.iter().map(|&(p, name)| (y(p), name.into()));
    SideAxis {
        label: "percentile".into(),
        ticks: ticks.collect(),
    }
}

/// The largest of 1, 2, 5 times a power of ten that is at most 95 % of the share.
fn round_down(share: f64) -> f64 {
    let decade = 10_f64.powf(share.log10().floor());
    let steps = [5.0, 2.0, 1.0, 0.5].map(|s| s * decade);
    steps
        .into_iter()
        .find(|s| *s < share * 0.95)
        .unwrap_or(decade / 2.0)
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// The share of the samples that are greater than `x`, NaN without samples.
    fn share_above(d: &SortedSamples, x: f64) -> f64 {
        let not_above = d.sorted.partition_point(|v| *v <= x);
        (d.len() - not_above) as f64 / d.len() as f64
    }

    fn long_tail(n: usize) -> SortedSamples {
        let mut rng = SmallRng::seed_from_u64(7);
        SortedSamples::new((0..n).map(|_| {
            let steps = (-rng.random::<f64>().max(1e-9).ln() / 2.3).floor();
            75.0 + 30.0 * steps * steps + rng.random::<f64>()
        }))
    }

    #[test]
    fn sample_quantiles_are_nearest_rank() {
        let d = SortedSamples::new((1..=100).rev().map(f64::from));
        for rank in 1..=100 {
            assert_eq!(d.quantile(f64::from(rank) / 100.0), Some(f64::from(rank)));
        }
        assert_eq!(d.quantile(0.501), Some(51.0));
        assert_eq!(
            [d.quantile(-1.0), d.quantile(7.0)],
            [Some(1.0), Some(100.0)]
        );
        assert_eq!(d.quantile(f64::NAN), None);
    }

    #[test]
    fn no_samples_give_no_curve_and_no_quantile() {
        let d = SortedSamples::new([f64::NAN, f64::INFINITY]);
        assert!(d.is_empty());
        assert_eq!((d.quantile(0.5), d.max()), (None, None));
        assert!(d.cdf().is_empty() && d.ccdf().is_empty());
        assert!(share_above(&d, 1.0).is_nan());
    }

    #[test]
    fn equal_samples_are_one_step() {
        let d = SortedSamples::new([75.0, 105.0, 75.0, 75.0]);
        assert_eq!(d.cdf(), [(75.0, 0.0), (75.0, 0.75), (105.0, 1.0)]);
        assert_eq!(d.ccdf(), [(75.0, 1.0), (75.0, 0.25), (105.0, 0.0)]);
    }

    #[test]
    fn curves_are_bounded_with_exact_tail() {
        let d = long_tail(200_000);
        let points = d.ccdf();
        assert!(points.len() <= 1000, "{} points", points.len());
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 >= b.1));
        for &(x, share) in &points[1..] {
            assert_eq!(share, share_above(&d, x));
        }
        let tail: Vec<f64> = points[points.len() - 250..].iter().map(|p| p.0).collect();
        assert_eq!(tail, d.sorted[d.len() - 250..]);
    }

    #[test]
    fn thinned_curve_stays_within_one_pixel() {
        let d = long_tail(200_000);
        let decades = (d.len() as f64).log10();
        let points = d.ccdf();
        for &x in d.sorted.iter().step_by(17) {
            let drawn = points[points.partition_point(|p| p.0 <= x) - 1].1;
            let exact = share_above(&d, x);
            assert!((drawn - exact) * 350.0 <= 1.0);
            if exact > 0.0 {
                assert!((drawn / exact).log10() / decades * 350.0 <= 1.0);
            }
        }
    }
}
