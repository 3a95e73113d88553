use std::collections::BTreeMap;
use std::thread;

use pillion_stats::measure::{Percentile, bootstrap_interval, nearest_rank};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use thiserror::Error;

use super::{MEASURES, Of, Pool, RunMeasure, Totals, by_number};

/// The share of intervals that hold the difference.
pub(super) const CONFIDENCE: f64 = 0.95;

/// Pools side by side.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The variant that the others are compared with.
    pub baseline: String,
    /// How often intervals hold the difference.
    pub confidence: f64,
    /// For each point of the grid and each group.
    pub sections: Vec<Section>,
}

/// The variants of one group at one point of the grid.
#[derive(Debug, Clone, Serialize)]
pub struct Section {
    /// The grid's parameters; empty without a grid.
    pub point: String,
    /// The group's name.
    pub group: String,
    /// The baseline first.
    pub variants: Vec<Compared>,
}

/// One variant, and how it differs from the baseline. Both are by the measures' names.
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// The variant's name.
    pub variant: String,
    /// Runs that were pooled, of different seeds.
    pub runs: usize,
    /// Runs that repeated one of them in every message, and are left out.
    pub repeats: usize,
    /// Each measure, of all its runs together; what is not known is left out.
    pub values: BTreeMap<&'static str, f64>,
    /// Each measure minus the baseline's; none of the baseline.
    pub differences: BTreeMap<&'static str, Difference>,
}

/// How a value differs from the baseline's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// By how much.
    pub by: f64,
    /// The lower end of the interval of confidence; none of the largest value of a distribution,
    /// which drawing anew tells nothing about, and where all draws are alike.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
}

/// Why pools cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompareError {
    /// There are none.
    #[error("no runs that are whole; nothing to compare")]
    Nothing,
    /// No measure is called so.
    #[error("no measure is called `{name}`; there are {there}")]
    NoMeasure {
        /// The one asked for.
        name: String,
        /// Those that there are.
        there: String,
    },
    /// No variant is called so.
    #[error("no variant is called `{name}`; there are {there}")]
    NoBaseline {
        /// The one asked for.
        name: String,
        /// Those that there are.
        there: String,
    },
}

impl Comparison {
    /// Leaves out all measures but these.
    pub fn keep(&mut self, measures: &[RunMeasure]) {
        let is_kept = |name: &&str| measures.iter().any(|it| it.name == *name);
        for variant in self.sections.iter_mut().flat_map(|it| &mut it.variants) {
            variant.values.retain(|name, _| is_kept(name));
            variant.differences.retain(|name, _| is_kept(name));
        }
    }
}

/// The measure of this name.
///
/// # Errors
/// [`CompareError::NoMeasure`]
pub fn measure(name: &str) -> Result<RunMeasure, CompareError> {
    let measure = MEASURES.into_iter().find(|it| it.name == name);
    measure.ok_or_else(|| CompareError::NoMeasure {
        name: name.to_owned(),
        there: MEASURES.map(|it| it.name).join(", "),
    })
}

/// The pools of a section, with what was drawn from each.
type Members<'a> = Vec<(&'a Pool, &'a [Values])>;

/// Compares the variants of each group at each point of the grid with the baseline: the variant of
/// that name, or else `plain`, or else the first.
///
/// # Errors
/// [`CompareError`].
pub fn compare(pools: &[Pool], baseline: Option<&str>) -> Result<Comparison, CompareError> {
    let variant = |pool: &Pool| pool.label.variant.clone();
    let baseline = choose(pools.iter().map(variant), baseline)?;
    let drawn = draw_all(pools);
    let mut sections: Vec<(Section, Members)> = Vec::new();
    for (pool, drawn) in pools.iter().zip(&drawn) {
        let point = pool.label.point.clone();
        let is_it = |it: &&mut (Section, _)| it.0.point == point && it.0.group == pool.group;
        let section = Section {
            point: point.clone(),
            group: pool.group.clone(),
            variants: Vec::new(),
        };
        match sections.iter_mut().find(is_it) {
            Some((_, members)) => members.push((pool, drawn)),
            None => sections.push((section, vec![(pool, drawn)])),
        }
    }
    sections.sort_by(|(one, _), (other, _)| by_number(&one.point, &other.point));
    let sections = sections.into_iter().map(|(section, mut members)| {
        members.sort_by_key(|(pool, _)| variant(pool) != baseline);
        let base = members.first().copied();
        let base = base.filter(|(pool, _)| variant(pool) == baseline);
        let variants = members.iter().enumerate().map(|(place, &(pool, drawn))| {
            let against = base.filter(|_| place > 0);
            Compared {
                variant: variant(pool),
                runs: pool.runs(),
                repeats: pool.repeats,
                values: each(|measure, _| pool.value(measure)),
                differences: each(|measure, place| {
                    let (other, others) = against?;
                    let by = pool.value(measure)? - other.value(measure)?;
                    let (low, high) = interval(measure, place, drawn, others).unzip();
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

fn choose(
    variants: impl Iterator<Item = String>,
    wanted: Option<&str>,
) -> Result<String, CompareError> {
    let mut there: Vec<String> = Vec::new();
    for variant in variants {
        if !there.contains(&variant) {
            there.push(variant);
        }
    }
    let named = |name: &str| there.iter().find(|it| it.as_str() == name).cloned();
    match wanted {
        Some(name) => named(name).ok_or_else(|| CompareError::NoBaseline {
            name: name.to_owned(),
            there: there.join(", "),
        }),
        None => {
            let first = there.first().cloned();
            named("plain").or(first).ok_or(CompareError::Nothing)
        }
    }
}

/// On all processors: it takes seconds where runs are long.
fn draw_all(pools: &[Pool]) -> Vec<Vec<Values>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = pools.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let parts = pools.chunks(share);
        let workers: Vec<_> = parts
            .map(|part| scope.spawn(|| part.iter().map(resampled).collect::<Vec<_>>()))
            .collect();
        let drawn = workers.into_iter().map(thread::ScopedJoinHandle::join);
        drawn
            .flat_map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn each<V>(of: impl Fn(&RunMeasure, usize) -> Option<V>) -> BTreeMap<&'static str, V> {
    let measures = MEASURES.iter().enumerate();
    measures
        .filter_map(|(place, measure)| Some((measure.name, of(measure, place)?)))
        .collect()
}

/// In which most of the differences between both draws lie.
fn interval(
    measure: &RunMeasure,
    place: usize,
    drawn: &[Values],
    others: &[Values],
) -> Option<(f64, f64)> {
    if matches!(measure.of, Of::Delivery(percentile) if percentile == Percentile::MAX) {
        return None;
    }
    let pairs = drawn.iter().zip(others);
    let differences = pairs.map(|(one, other)| Some(one[place]? - other[place]?));
    let differences = differences.collect::<Option<Vec<f64>>>()?;
    if differences.windows(2).all(|pair| pair[0] == pair[1]) {
        return None;
    }
    bootstrap_interval(differences, (1.0 - CONFIDENCE) / 2.0)
}

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
