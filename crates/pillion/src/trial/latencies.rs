use pillion_bpf::LatencyBuckets;
use pillion_stats::measure::nearest_rank;
use serde::{Deserialize, Serialize};

/// Segments by their ACK latency, in the kernel's buckets: each is at most an eighth wider than the
/// one before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(usize, u64)>", into = "Vec<(usize, u64)>")]
pub struct Latencies([u64; LatencyBuckets::COUNT]);

/// Segments of a bucket at most: those of all buckets have room in a number.
const MOST: u64 = u64::MAX / LatencyBuckets::COUNT as u64;

impl Default for Latencies {
    fn default() -> Self {
        Self([0; LatencyBuckets::COUNT])
    }
}

/// Buckets with something in them, by number. What no bucket has is dropped.
impl From<Vec<(usize, u64)>> for Latencies {
    fn from(buckets: Vec<(usize, u64)>) -> Self {
        let mut all = Self::default();
        for (bucket, count) in buckets {
            if let Some(place) = all.0.get_mut(bucket) {
                *place = place.saturating_add(count).min(MOST);
            }
        }
        all
    }
}

impl From<Latencies> for Vec<(usize, u64)> {
    fn from(latencies: Latencies) -> Self {
        let buckets = latencies.0.into_iter().enumerate();
        buckets.filter(|(_, count)| *count > 0).collect()
    }
}

impl From<&LatencyBuckets> for Latencies {
    fn from(buckets: &LatencyBuckets) -> Self {
        let mut all = Self::default();
        for (place, count) in all.0.iter_mut().zip(buckets.counts()) {
            *place = u64::from(*count);
        }
        all
    }
}

impl Latencies {
    /// Adds those of another so many times.
    pub(crate) fn add(&mut self, other: &Self, times: u64) {
        for (place, count) in self.0.iter_mut().zip(&other.0) {
            *place = place.saturating_add(count.saturating_mul(times)).min(MOST);
        }
    }

    /// The `q` quantile in milliseconds, by [`nearest_rank`]; inside its bucket, as if the
    /// segments there were evenly apart. `None` without segments.
    #[must_use]
    pub fn quantile_ms(&self, q: f64) -> Option<f64> {
        let rank = nearest_rank(q, self.0.iter().sum())?;
        let mut below = 0;
        let found = self.0.iter().enumerate().find_map(|(bucket, count)| {
            below += count;
            (below >= rank).then(|| (bucket, (count - (below - rank)) as f64 / *count as f64))
        });
        found.map(|(bucket, share)| {
            let [begin, end] = [bucket, bucket + 1].map(LatencyBuckets::begin_us);
            (begin as f64 + (end - begin) as f64 * share) / 1e3
        })
    }

    /// The share of segments with at most this latency, at the end of each bucket up to the last
    /// one with any: milliseconds and share.
    #[must_use]
    pub fn cumulative(&self) -> Vec<(f64, f64)> {
        let all: u64 = self.0.iter().sum();
        let mut below = 0;
        let mut points = Vec::new();
        for (bucket, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            below += count;
            let end_ms = LatencyBuckets::begin_us(bucket + 1) as f64 / 1e3;
            points.push((end_ms, below as f64 / all as f64));
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_in_the_bucket_with_its_rank() {
        let latencies = Latencies::from(vec![(1, 3), (9, 1)]);
        let quantiles = [0.0, 0.75, 0.76, 1.0].map(|q| latencies.quantile_ms(q).unwrap());
        // From 128 to 144 us, and from 256 to 288.
        assert!((quantiles[0] - 0.1333).abs() < 1e-3);
        let rest = [0.144, 0.288, 0.288];
        assert!(
            quantiles[1..]
                .iter()
                .zip(rest)
                .all(|(q, ms)| (q - ms).abs() < 1e-9)
        );
        assert_eq!(Latencies::default().quantile_ms(0.5), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let latencies = Latencies::from(vec![(0, 7), (168, 1)]);
        let text = serde_json::to_string(&latencies).unwrap();
        assert_eq!(text, "[[0,7],[168,1]]");
        assert_eq!(serde_json::from_str::<Latencies>(&text).unwrap(), latencies);
        assert_eq!(
            serde_json::from_str::<Latencies>("[[99999,1]]").unwrap(),
            Latencies::default()
        );
    }
}
