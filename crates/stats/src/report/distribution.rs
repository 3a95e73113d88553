//! Samples to quantiles, CDF and complementary CDF.

use crate::measure::{Step, quantile, thinned};

/// The distribution of a set of samples, in whatever unit they have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Distribution {
    sorted: Vec<f64>,
}

impl Distribution {
    /// Sorts the samples, once. Values that are not finite are left out.
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
    /// samples does not exceed. It is always one of the samples, never interpolated. `q` is
    /// limited to 0 (the smallest sample) to 1 (the largest); `None` without samples or if `q`
    /// is NaN.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        quantile(&self.sorted, q)
    }

    /// The share of the samples that are greater than `x`, NaN without samples.
    pub fn share_above(&self, x: f64) -> f64 {
        let not_above = self.sorted.partition_point(|v| *v <= x);
        (self.len() - not_above) as f64 / self.len() as f64
    }

    /// The CDF as a step curve: from each point's value on, its share of the samples is not
    /// greater. It begins at share 0. At most 1,000 points: the tail exact, the body thinned so
    /// far that no figure shows it. Empty without samples.
    pub fn cdf(&self) -> Vec<(f64, f64)> {
        self.curve(|n, rank| rank / n)
    }

    /// The complementary CDF as a step curve: from each point's value on, its share of the
    /// samples is greater. It begins at share 1 and ends at 0; otherwise like [`Self::cdf`].
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

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::SmallRng};

    fn long_tail(n: usize) -> Distribution {
        let mut rng = SmallRng::seed_from_u64(7);
        Distribution::new((0..n).map(|_| {
            let steps = (-rng.random::<f64>().max(1e-9).ln() / 2.3).floor();
            75.0 + 30.0 * steps * steps + rng.random::<f64>()
        }))
    }

    #[test]
    fn quantiles_are_nearest_rank() {
        let d = Distribution::new((1..=100).rev().map(f64::from));
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
        let d = Distribution::new([f64::NAN, f64::INFINITY]);
        assert!(d.is_empty());
        assert_eq!((d.quantile(0.5), d.max()), (None, None));
        assert!(d.cdf().is_empty() && d.ccdf().is_empty());
        assert!(d.share_above(1.0).is_nan());
    }

    #[test]
    fn ties_are_one_step() {
        let d = Distribution::new([75.0, 105.0, 75.0, 75.0]);
        assert_eq!(d.cdf(), [(75.0, 0.0), (75.0, 0.75), (105.0, 1.0)]);
        assert_eq!(d.ccdf(), [(75.0, 1.0), (75.0, 0.25), (105.0, 0.0)]);
    }

    #[test]
    fn curves_are_bounded_and_their_tail_is_exact() {
        let d = long_tail(200_000);
        let points = d.ccdf();
        assert!(points.len() <= 1000, "{} points", points.len());
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 >= b.1));
        for &(x, share) in &points[1..] {
            assert_eq!(share, d.share_above(x));
        }
        let tail: Vec<f64> = points[points.len() - 250..].iter().map(|p| p.0).collect();
        assert_eq!(tail, d.sorted[d.len() - 250..]);
    }

    #[test]
    fn a_thinned_curve_stays_within_a_pixel() {
        let d = long_tail(200_000);
        let decades = (d.len() as f64).log10();
        let points = d.ccdf();
        for &x in d.sorted.iter().step_by(17) {
            let drawn = points[points.partition_point(|p| p.0 <= x) - 1].1;
            let exact = d.share_above(x);
            assert!((drawn - exact) * 350.0 <= 1.0);
            if exact > 0.0 {
                assert!((drawn / exact).log10() / decades * 350.0 <= 1.0);
            }
        }
    }
}
