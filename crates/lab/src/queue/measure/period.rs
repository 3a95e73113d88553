use serde::Serialize;

/// The time after which drops recur, found by the autocorrelation of their number in each
/// millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Period {
    /// The time after which drops recur, in milliseconds, from 5 to 1,000.
    pub lag_ms: u64,
    /// The correlation at that time: 1 if every drop recurs.
    pub correlation: f64,
}

const MS: u64 = 1_000_000;
const LAGS: std::ops::RangeInclusive<usize> = 5..=1000;
/// Pairs of milliseconds beyond which no period is sought, so that long recordings do not take
/// long.
const MOST_PAIRS: u64 = 400_000_000;

/// The lag of the greatest correlation, among those that stand out: that are more than chance would
/// bring (three standard deviations) and greater than all within a fifth of them. Without the
/// latter, a queue that is full for a while would pass for one with a short period.
pub(super) fn period(times: &[u64], (begin, end): (u64, u64)) -> Option<Period> {
    let bins = ((end - begin) / MS) as usize + 1;
    let counts = counts(times, begin);
    if counts.len() < 8 || bins < 2 * LAGS.end() || counts.len() as u64 * 1000 > MOST_PAIRS {
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
    let stands_out = |lag: &usize| {
        let reach = (lag / 5).max(2);
        let around = all
            .iter()
            .enumerate()
            .skip(lag.saturating_sub(reach))
            .take(2 * reach + 1);
        let mut others = around.filter(|(other, _)| other != lag && *other > 0);
        all[*lag] > by_chance && others.all(|(_, other)| *other < all[*lag])
    };
    LAGS.filter(stands_out)
        .max_by(|a, b| all[*a].total_cmp(&all[*b]))
        .map(|lag| Period {
            lag_ms: lag as u64,
            correlation: all[lag],
        })
}

/// The milliseconds that have drops, each with the number of these.
fn counts(times: &[u64], begin: u64) -> Vec<(u64, f64)> {
    let bin = |time: &u64| time.saturating_sub(begin) / MS;
    times
        .chunk_by(|a, b| bin(a) == bin(b))
        .filter_map(|chunk| chunk.first().map(|time| (bin(time), chunk.len() as f64)))
        .collect()
}

/// For each lag, the sum of the products of the counts that are so far apart.
fn products(counts: &[(u64, f64)]) -> Vec<f64> {
    let mut products = vec![0.0; LAGS.end() + 1];
    for (place, (bin, count)) in counts.iter().enumerate() {
        for (later, other) in counts.iter().skip(place) {
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

    const SPAN: (u64, u64) = (0, 60_000 * MS);

    #[test]
    fn drops_that_recur_have_their_period() {
        let mut random = rand_pcg::Pcg32::seed_from_u64(1);
        let mut times: Vec<u64> = (0..600).map(|n| n * 100 * MS + 37).collect();
        times.extend((0..600).map(|_| random.random_range(0..SPAN.1)));
        times.sort_unstable();
        let found = period(&times, SPAN).unwrap();
        assert_eq!(found.lag_ms % 100, 0, "{found:?}");
        assert!(found.correlation > 0.2, "{found:?}");
    }

    #[test]
    fn a_queue_that_is_full_for_a_while_now_and_then_has_none() {
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
