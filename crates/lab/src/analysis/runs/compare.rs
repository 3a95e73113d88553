use std::collections::BTreeMap;
use std::thread;

use pillion_stats::measure::{Percentile, bootstrap_interval, bootstrap_tail, nearest_rank};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use thiserror::Error;

use super::{MEASURES, MeasureSource, Pool, RunMeasure, Totals, compare_points};

/// The confidence level of intervals, that of [`bootstrap_tail`].
pub(super) const CONFIDENCE: f64 = 0.95;

/// The result of comparing variants.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The variant that the others are compared with.
    pub baseline: String,
    /// The confidence level of the intervals, from 0 to 1.
    pub confidence: f64,
    /// One section per point of the grid and group.
    pub sections: Vec<Section>,
}

/// The variants of one group at one point of the grid.
#[derive(Debug, Clone, Serialize)]
pub struct Section {
    /// The grid's parameters; empty without a grid.
    pub point: String,
    /// The group's name.
    pub group: String,
    /// All variants; the baseline is first.
    pub variants: Vec<VariantResult>,
}

/// One variant and its differences from the baseline.
#[derive(Debug, Clone, Serialize)]
pub struct VariantResult {
    /// The variant's name.
    pub variant: String,
    /// The number of combined runs, each with its own seed.
    pub runs: usize,
    /// Runs that were omitted because they repeat another one in every message.
    pub repeats: usize,
    /// The value of each known measure over all runs, by the measure's name.
    pub values: BTreeMap<&'static str, f64>,
    /// The difference of each measure from the baseline's, by the measure's name; empty for the
    /// baseline.
    pub differences: BTreeMap<&'static str, Difference>,
}

/// The difference of a value from the baseline's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// The difference in the measure's unit.
    pub by: f64,
    /// The lower end of the confidence interval. `None` for a maximum, about which resampling gives
    /// no information, and if all resamples are equal.
    pub low: Option<f64>,
    /// The upper end of the confidence interval.
    pub high: Option<f64>,
}

/// The reason why runs cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompareError {
    /// No runs were given.
    #[error("no complete runs: nothing to compare")]
    NoRuns,
    /// The measure does not exist.
    #[error("unknown measure `{name}`: expected one of {available}")]
    UnknownMeasure {
        /// The requested name.
        name: String,
        /// The existing names.
        available: String,
    },
    /// The variant does not exist.
    #[error("unknown variant `{name}`: expected one of {available}")]
    UnknownVariant {
        /// The requested name.
        name: String,
        /// The existing names.
        available: String,
    },
}

impl Comparison {
    /// Removes all other measures.
    pub fn retain_measures(&mut self, measures: &[RunMeasure]) {
        let is_retained = |name: &&str| measures.iter().any(|it| it.name == *name);
        for variant in self.sections.iter_mut().flat_map(|it| &mut it.variants) {
            variant.values.retain(|name, _| is_retained(name));
            variant.differences.retain(|name, _| is_retained(name));
        }
    }
}

/// Returns the measure with this name.
///
/// # Errors
///
/// [`CompareError::UnknownMeasure`].
pub fn measure(name: &str) -> Result<RunMeasure, CompareError> {
    let measure = MEASURES.into_iter().find(|it| it.name == name);
    measure.ok_or_else(|| CompareError::UnknownMeasure {
        name: name.to_owned(),
        available: MEASURES.map(|it| it.name).join(", "),
    })
}

/// The pools of a section, each with its resamples.
type Members<'a> = Vec<(&'a Pool, &'a [Values])>;

/// Compares the variants of each group at each point of the grid with the baseline. Without a name,
/// the baseline is `plain`, otherwise the first variant.
///
/// # Errors
///
/// [`CompareError`].
pub fn compare(pools: &[Pool], baseline: Option<&str>) -> Result<Comparison, CompareError> {
    let variant = |pool: &Pool| pool.label.variant.clone();
    let baseline = choose_baseline(pools.iter().map(variant), baseline)?;
    let resamples = resample_all(pools);
    let mut sections: Vec<(Section, Members)> = Vec::new();
    for (pool, resamples) in pools.iter().zip(&resamples) {
        let point = pool.label.point.clone();
        let matches = |it: &&mut (Section, _)| it.0.point == point && it.0.group == pool.group;
        let section = Section {
            point: point.clone(),
            group: pool.group.clone(),
            variants: Vec::new(),
        };
        match sections.iter_mut().find(matches) {
            Some((_, members)) => members.push((pool, resamples)),
            None => sections.push((section, vec![(pool, resamples)])),
        }
    }
    sections.sort_by(|(one, _), (other, _)| compare_points(&one.point, &other.point));
    let sections = sections.into_iter().map(|(section, mut members)| {
        members.sort_by_key(|(pool, _)| variant(pool) != baseline);
        let base = members.first().copied();
        let base = base.filter(|(pool, _)| variant(pool) == baseline);
        let variants = members
            .iter()
            .enumerate()
            .map(|(index, &(pool, resamples))| {
                let against = base.filter(|_| index > 0);
                VariantResult {
                    variant: variant(pool),
                    runs: pool.runs(),
                    repeats: pool.repeats,
                    values: per_measure(|measure, _| pool.value(measure)),
                    differences: per_measure(|measure, index| {
                        let (other, others) = against?;
                        let by = pool.value(measure)? - other.value(measure)?;
                        let tail = tail(pool, other);
                        let (low, high) =
                            interval(measure, index, [resamples, others], tail).unzip();
                        Some(Difference { by, low, high })
                    }),
                }
            });
        Section {
            variants: variants.collect(),
            ..section
        }
    });
    Ok(Comparison {
        sections: sections.collect(),
        baseline,
        confidence: CONFIDENCE,
    })
}

fn choose_baseline(
    variants: impl Iterator<Item = String>,
    requested: Option<&str>,
) -> Result<String, CompareError> {
    let mut available: Vec<String> = Vec::new();
    for variant in variants {
        if !available.contains(&variant) {
            available.push(variant);
        }
    }
    let find = |name: &str| available.iter().find(|it| it.as_str() == name).cloned();
    match requested {
        Some(name) => find(name).ok_or_else(|| CompareError::UnknownVariant {
            name: name.to_owned(),
            available: available.join(", "),
        }),
        None => {
            let first = available.first().cloned();
            find("plain").or(first).ok_or(CompareError::NoRuns)
        }
    }
}

/// Resamples all pools, on all processors, because long runs take seconds.
fn resample_all(pools: &[Pool]) -> Vec<Vec<Values>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = pools.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let parts = pools.chunks(share);
        let workers: Vec<_> = parts
            .map(|part| scope.spawn(|| part.iter().map(resampled).collect::<Vec<_>>()))
            .collect();
        let resamples = workers.into_iter().map(thread::ScopedJoinHandle::join);
        resamples
            .flat_map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn per_measure<V>(of: impl Fn(&RunMeasure, usize) -> Option<V>) -> BTreeMap<&'static str, V> {
    let measures = MEASURES.iter().enumerate();
    measures
        .filter_map(|(index, measure)| Some((measure.name, of(measure, index)?)))
        .collect()
}

/// Returns the confidence interval of the difference. Its tail depends on the smaller number of
/// runs.
fn interval(
    measure: &RunMeasure,
    index: usize,
    [resamples, others]: [&[Values]; 2],
    tail: f64,
) -> Option<(f64, f64)> {
    if matches!(measure.of, MeasureSource::Delivery(percentile) if percentile == Percentile::MAX) {
        return None;
    }
    let pairs = resamples.iter().zip(others);
    let differences = pairs.map(|(one, other)| Some(one[index]? - other[index]?));
    let differences = differences.collect::<Option<Vec<f64>>>()?;
    if differences.windows(2).all(|pair| pair[0] == pair[1]) {
        return None;
    }
    bootstrap_interval(differences, tail)
}

/// Returns the share of resamples beyond either end of the interval, by the smaller pool.
fn tail(one: &Pool, other: &Pool) -> f64 {
    let units = |pool: &Pool| match pool.runs() {
        // Only streams are drawn then.
        1 => pool.streams.len(),
        runs => runs,
    };
    bootstrap_tail(units(one).min(units(other)))
}

/// The number of resamples per pool.
pub(super) const RESAMPLES: usize = 1000;

/// The value of each measure of [`MEASURES`], in that order.
pub(super) type Values = [Option<f64>; MEASURES.len()];

/// Resamples a pool: draws runs with replacement, and within each run its streams, because streams
/// of one run share its path (nested bootstrap; B. Efron, R. Tibshirani, An Introduction to the
/// Bootstrap, 1993). The seed depends on the pool's name, so a pool always gives the same
/// resamples, and different pools give different ones.
pub(super) fn resampled(pool: &Pool) -> Vec<Values> {
    let name = [&pool.label.variant, &pool.label.point, &pool.group].map(String::as_str);
    let mut rng = Pcg64Mcg::seed_from_u64(hash(&name.join("\n")));
    let mut messages_of = vec![0_u64; pool.streams.len()];
    for (_, stream) in &pool.messages {
        messages_of[*stream as usize] += 1;
    }
    (0..RESAMPLES)
        .map(|_| {
            let (times, totals) = draw_once(pool, &mut rng);
            let resamples = times.iter().zip(&messages_of);
            let count = resamples.map(|(times, messages)| u64::from(*times) * messages);
            values(pool, &times, count.sum(), &totals)
        })
        .collect()
}

/// Returns how often each stream is drawn, and the totals of the draw.
fn draw_once(pool: &Pool, rng: &mut Pcg64Mcg) -> (Vec<u32>, Totals) {
    let mut times = vec![0; pool.streams.len()];
    let mut totals = Totals::default();
    for _ in &pool.runs {
        let run = &pool.runs[rng.random_range(0..pool.runs.len())];
        totals += run.run_totals;
        for _ in run.streams.clone() {
            let stream = rng.random_range(run.streams.clone());
            times[stream] += 1;
            totals += pool.streams[stream];
        }
    }
    (times, totals)
}

fn values(pool: &Pool, times: &[u32], count: u64, totals: &Totals) -> Values {
    let mut values = MEASURES.map(|measure| match measure.of {
        MeasureSource::Totals(of) => of(totals),
        MeasureSource::Delivery(_) => None,
    });
    // The percentiles in `MEASURES` are in ascending order.
    let mut messages = pool.messages.iter();
    let (mut cumulative, mut last_ms) = (0, None);
    for (value, measure) in values.iter_mut().zip(&MEASURES) {
        let MeasureSource::Delivery(percentile) = measure.of else {
            continue;
        };
        let Some(rank) = nearest_rank(percentile.share, count) else {
            continue;
        };
        while cumulative < rank
            && let Some((latency_ms, stream)) = messages.next()
        {
            cumulative += u64::from(times[*stream as usize]);
            last_ms = Some(*latency_ms);
        }
        *value = last_ms;
    }
    values
}

/// Hashes a text by FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
