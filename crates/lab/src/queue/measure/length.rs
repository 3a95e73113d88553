//! The length of a queue over time: distribution and period.

use std::collections::HashMap;

use pillion_stats::measure::{Percentile, nearest_rank};
use serde::Serialize;

use crate::queue::{Disposition, Packet};

/// Distribution of the queue length, weighted by time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct LengthOverTime {
    /// The queue's length in packets.
    pub packets: Quantiles,
    /// The queue's length in bytes, as counted by the queueing disciplines.
    pub bytes: Quantiles,
}

/// The queue's length from a point in time.
#[derive(Debug, Clone, Copy)]
struct Step {
    at_ns: u64,
    queue: u16,
    /// Packets and bytes in the queue; if `absolute` is false, their change.
    size: [i64; 2],
    absolute: bool,
}

/// Tracks the queue length as reported by the queueing discipline. Without a report, it counts
/// packets in and out.
#[derive(Debug, Default)]
pub(super) struct LengthTracker(Vec<Step>);

impl LengthTracker {
    pub(super) fn add(&mut self, packet: &Packet) {
        let stays =
            packet.disposition == Disposition::Sent || packet.disposition == Disposition::Dropped;
        let own = match stays {
            true => [1, i64::from(packet.counted)],
            false => [0, 0],
        };
        let mut step = |at_ns: Option<u64>, size: [i64; 2], absolute| {
            let queue = packet.queue;
            self.0.extend(at_ns.map(|at_ns| Step {
                at_ns,
                queue,
                size,
                absolute,
            }));
        };
        match packet.found {
            Some(found) => {
                let found = [found.packets, found.bytes].map(i64::from);
                step(
                    packet.arrived_ns,
                    [found[0] + own[0], found[1] + own[1]],
                    true,
                );
                let behind = packet
                    .behind
                    .map(|it| [it.packets, it.bytes].map(i64::from));
                step(
                    packet.left_ns.and(behind).and(packet.left_ns),
                    behind.unwrap_or_default(),
                    true,
                );
            }
            None if packet.arrived_ns.is_some() => {
                step(packet.arrived_ns, own, false);
                step(packet.left_ns, own.map(|size| -size), false);
            }
            None => {}
        }
    }

    pub(super) fn finish(mut self) -> LengthOverTime {
        self.0.sort_by_key(|step| step.at_ns);
        let mut queues: HashMap<u16, [i64; 2]> = HashMap::new();
        let mut all = [0, 0];
        let mut durations: [HashMap<u64, u64>; 2] = Default::default();
        let ends = self.0.iter().skip(1).map(|step| step.at_ns);
        for (step, end_ns) in self.0.iter().zip(ends) {
            let queue = queues.entry(step.queue).or_default();
            for which in [0, 1] {
                let base = if step.absolute { 0 } else { queue[which] };
                let now = base + step.size[which];
                all[which] += now - queue[which];
                queue[which] = now;
                let length = all[which].max(0).cast_unsigned();
                *durations[which].entry(length).or_default() += end_ns - step.at_ns;
            }
        }
        let [packets, bytes] = durations.map(|durations| {
            let mut durations: Vec<_> = durations.into_iter().collect();
            durations.sort_unstable();
            let lasting = durations.iter().filter(|(_, ns)| *ns > 0).copied();
            Quantiles::weighted(&lasting.collect::<Vec<_>>(), 1.0)
        });
        LengthOverTime { packets, bytes }
    }
}

/// Summary of a distribution; all fields are `None` if it is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// The mean.
    pub mean: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// The 90th percentile.
    pub p90: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The 99.9th percentile.
    pub p99_9: Option<f64>,
    /// The maximum.
    pub max: Option<f64>,
}

impl Quantiles {
    /// Returns the quantiles of unsorted numbers, divided by `unit`. A quantile is the smallest
    /// number that the given share does not exceed.
    #[must_use]
    pub fn of(mut numbers: Vec<u64>, unit: f64) -> Self {
        numbers.sort_unstable();
        Self::weighted(
            &numbers
                .into_iter()
                .map(|number| (number, 1))
                .collect::<Vec<_>>(),
            unit,
        )
    }

    /// Returns the quantiles of sorted numbers with weights, divided by `unit`.
    pub(crate) fn weighted(numbers: &[(u64, u64)], unit: f64) -> Self {
        let total: u64 = numbers.iter().map(|(_, weight)| weight).sum();
        if total == 0 {
            return Self::default();
        }
        let sum: f64 = numbers
            .iter()
            .map(|&(number, weight)| number as f64 * weight as f64)
            .sum();
        let mut seen = 0;
        let up_to: Vec<_> = numbers
            .iter()
            .map(|&(number, weight)| {
                seen += weight;
                (seen, number)
            })
            .collect();
        let quantile = |percentile: Percentile| {
            let rank = nearest_rank(percentile.share, total)?;
            let index = up_to.partition_point(|(seen, _)| *seen < rank);
            up_to.get(index).map(|(_, number)| *number as f64 / unit)
        };
        Self {
            mean: Some(sum / total as f64 / unit),
            p50: quantile(Percentile::P50),
            p90: quantile(Percentile::P90),
            p99: quantile(Percentile::P99),
            p99_9: quantile(Percentile::P99_9),
            max: numbers.last().map(|(number, _)| *number as f64 / unit),
        }
    }
}

/// The period of recurring drops, from the autocorrelation of their number in each millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Period {
    /// The period, in milliseconds, from 5 to 1,000.
    pub lag_ms: u64,
    /// The correlation at the period: 1 if every drop recurs.
    pub correlation: f64,
}

const MS: u64 = 1_000_000;
const LAGS: std::ops::RangeInclusive<usize> = 5..=1000;
/// Maximum pairs of milliseconds for a period search, which limits the time for long recordings.
const MAX_PAIRS: u64 = 400_000_000;

/// Returns the lag with the greatest correlation among the significant ones. These exceed chance
/// (three standard deviations) and all correlations within a fifth of the lag. Without the second
/// condition, a queue that is full for a while would seem to have a short period.
pub(super) fn period(times: &[u64], (start, end): (u64, u64)) -> Option<Period> {
    let bins = ((end - start) / MS) as usize + 1;
    let counts = counts(times, start);
    if counts.len() < 8 || bins < 2 * LAGS.end() || counts.len() as u64 * 1000 > MAX_PAIRS {
        return None;
    }
    let total: f64 = counts.iter().map(|(_, count)| count).sum();
    let squares: f64 = counts.iter().map(|(_, count)| count * count).sum();
    let mean = total / bins as f64;
    let variance = squares / bins as f64 - mean * mean;
    if variance <= 0.0 {
        return None;
    }
    let products = products(&counts);
    let correlation = |lag: usize| (products[lag] / (bins - lag) as f64 - mean * mean) / variance;
    let all: Vec<f64> = (0..products.len()).map(correlation).collect();
    let by_chance = 3.0 / (bins as f64).sqrt();
    let is_significant = |lag: &usize| {
        let radius = (lag / 5).max(2);
        let around = all
            .iter()
            .enumerate()
            .skip(lag.saturating_sub(radius))
            .take(2 * radius + 1);
        let mut others = around.filter(|(other, _)| other != lag && *other > 0);
        all[*lag] > by_chance && others.all(|(_, other)| *other < all[*lag])
    };
    LAGS.filter(is_significant)
        .max_by(|a, b| all[*a].total_cmp(&all[*b]))
        .map(|lag| Period {
            lag_ms: lag as u64,
            correlation: all[lag],
        })
}

/// Returns the milliseconds with drops, and the number of drops in each.
fn counts(times: &[u64], start: u64) -> Vec<(u64, f64)> {
    let bin = |time: &u64| time.saturating_sub(start) / MS;
    times
        .chunk_by(|a, b| bin(a) == bin(b))
        .filter_map(|chunk| chunk.first().map(|time| (bin(time), chunk.len() as f64)))
        .collect()
}

/// Returns the sum of the products of counts at each lag.
fn products(counts: &[(u64, f64)]) -> Vec<f64> {
    let mut products = vec![0.0; LAGS.end() + 1];
    for (index, (bin, count)) in counts.iter().enumerate() {
        for (later, other) in counts.iter().skip(index) {
            match products.get_mut((later - bin) as usize) {
                Some(product) => *product += count * other,
                None => break,
            }
        }
    }
    products
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn quantile_is_smallest_number_covering_share() {
        let of = Quantiles::of((1..=1000).rev().collect(), 1.0);
        assert_eq!((of.p50, of.p90), (Some(500.0), Some(900.0)));
        assert_eq!((of.p99, of.p99_9), (Some(990.0), Some(999.0)));
        assert_eq!((of.mean, of.max), (Some(500.5), Some(1000.0)));
        assert_eq!(Quantiles::of(vec![], 1.0), Quantiles::default());
    }

    #[test]
    fn quantiles_respect_weights() {
        let of = Quantiles::weighted(&[(0, 60), (10, 30), (20, 10)], 10.0);
        assert_eq!((of.p50, of.p90, of.p99), (Some(0.0), Some(1.0), Some(2.0)));
        assert_eq!(of.mean, Some(0.5));
    }

    const SPAN: (u64, u64) = (0, 60_000 * MS);

    #[test]
    fn recurring_drops_have_a_period() {
        let mut random = rand_pcg::Pcg32::seed_from_u64(1);
        let mut times: Vec<u64> = (0..600).map(|n| n * 100 * MS + 37).collect();
        times.extend((0..600).map(|_| random.random_range(0..SPAN.1)));
        times.sort_unstable();
        let found = period(&times, SPAN).unwrap();
        assert_eq!(found.lag_ms % 100, 0, "{found:?}");
        assert!(found.correlation > 0.2, "{found:?}");
    }

    #[test]
    fn occasionally_full_queue_has_no_period() {
        let mut random = rand_pcg::Pcg32::seed_from_u64(2);
        let mut times = Vec::new();
        let mut now = 0;
        while now < SPAN.1 {
            now += random.random_range(500..3000) * MS;
            times.extend((0..80).map(|n| now + n * MS));
        }
        let found = period(&times, SPAN);
        assert!(found.is_none_or(|it| it.correlation < 0.2), "{found:?}");
    }
}
