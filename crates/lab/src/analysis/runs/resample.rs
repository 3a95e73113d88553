use pillion_stats::measure::nearest_rank;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::pool::Pool;
use super::{MEASURES, Of, Totals};

/// How often a pool is drawn anew.
pub(super) const RESAMPLES: usize = 1000;

/// Each measure of [`MEASURES`], in that order.
pub(super) type Values = [Option<f64>; MEASURES.len()];

/// The pool's measures as they might have been: its runs drawn with replacement, and of each the
/// streams (B. Efron, R. Tibshirani, An Introduction to the Bootstrap, 1993; nested, for streams
/// of one run share its path). The same pool gives the same draws, another one other draws.
pub(super) fn resampled(pool: &Pool) -> Vec<Values> {
    let name = [&pool.label.variant, &pool.label.point, &pool.group].map(String::as_str);
    let mut random = Pcg64Mcg::seed_from_u64(hash(&name.join("\n")));
    let mut messages_of = vec![0_u64; pool.streams.len()];
    for (_, stream) in &pool.messages {
        messages_of[*stream as usize] += 1;
    }
    (0..RESAMPLES)
        .map(|_| {
            let (times, totals) = draw(pool, &mut random);
            let drawn = times.iter().zip(&messages_of);
            let count = drawn.map(|(times, messages)| u64::from(*times) * messages);
            values(pool, &times, count.sum(), &totals)
        })
        .collect()
}

/// How often each stream is drawn, and the sums of what is.
fn draw(pool: &Pool, random: &mut Pcg64Mcg) -> (Vec<u32>, Totals) {
    let mut times = vec![0; pool.streams.len()];
    let mut totals = Totals::default();
    for _ in &pool.runs {
        let run = &pool.runs[random.random_range(0..pool.runs.len())];
        totals += run.whole;
        for _ in run.streams.clone() {
            let stream = random.random_range(run.streams.clone());
            times[stream] += 1;
            totals += pool.streams[stream];
        }
    }
    (times, totals)
}

fn values(pool: &Pool, times: &[u32], count: u64, totals: &Totals) -> Values {
    let mut values = MEASURES.map(|measure| match measure.of {
        Of::Totals(of) => of(totals),
        Of::Delivery(_) => None,
    });
    // Percentiles stand in ascending order.
    let mut messages = pool.messages.iter();
    let (mut seen, mut last_ms) = (0, None);
    for (value, measure) in values.iter_mut().zip(&MEASURES) {
        let Of::Delivery(percentile) = measure.of else {
            continue;
        };
        let Some(rank) = nearest_rank(percentile.share, count) else {
            continue;
        };
        while seen < rank
            && let Some((latency_ms, stream)) = messages.next()
        {
            seen += u64::from(times[*stream as usize]);
            last_ms = Some(*latency_ms);
        }
        *value = last_ms;
    }
    values
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
