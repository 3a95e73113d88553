use std::cmp::Ordering;

use pillion_stats::measure::quantile;

use crate::run_key::{Part, RunKey};

use super::{Group, Of, RunMeasure, Stream, Totals};

/// The runs that a run belongs with, by its name without the seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The variant's name; empty in an experiment without.
    pub variant: String,
    /// The grid's parameters, as in `loss=2,rtt=150`.
    pub point: String,
}

impl Label {
    /// Of a run called like this, as in `plain,loss=2,seed=1`.
    #[must_use]
    pub fn of(run: &str) -> Self {
        let run = RunKey::from(run);
        let (point, variant): (Vec<&Part>, Vec<&Part>) =
            run.without_seed().partition(|part| part.key().is_some());
        let joined = |parts: Vec<&Part>| {
            let parts: Vec<_> = parts.into_iter().map(Part::as_str).collect();
            parts.join(",")
        };
        Self {
            variant: joined(variant),
            point: joined(point),
        }
    }
}

/// Points of a grid in order, numbers by their size, and before words.
pub(super) fn by_number(one: &str, other: &str) -> Ordering {
    let numbers = |part: &Part| {
        let numbers = part.value()?.split(':').map(str::parse::<f64>);
        numbers.collect::<Result<Vec<_>, _>>().ok()
    };
    let keys = [one, other].map(RunKey::from);
    let parts = keys[0].parts().zip(keys[1].parts());
    let orders = parts.map(|(one, other)| match (numbers(one), numbers(other)) {
        (Some(a), Some(b)) => {
            let mut orders = a.iter().zip(&b).map(|(a, b)| a.total_cmp(b));
            let first = orders.find(|order| order.is_ne());
            first.unwrap_or(a.len().cmp(&b.len()))
        }
        (a, b) => b.is_some().cmp(&a.is_some()).then(one.cmp(other)),
    });
    let first = orders.into_iter().find(|order| order.is_ne());
    first.unwrap_or_else(|| one.cmp(other))
}

/// A group of one variant, with the runs of all seeds together.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Variant and point of the grid.
    pub label: Label,
    /// The group's name.
    pub group: String,
    /// Runs that were another one's repeat in every message, for their seed changed nothing. They
    /// are left out: what is known twice is not known better.
    pub repeats: usize,
    /// Of each run.
    pub(super) runs: Vec<Members>,
    /// Of each stream, in the order of runs.
    pub(super) streams: Vec<Totals>,
    /// All messages in order of delivery latency, in milliseconds, each with its stream's place.
    pub(super) messages: Vec<(f64, u32)>,
}

/// A run's part in a pool.
#[derive(Debug, Clone)]
pub(super) struct Members {
    pub(super) streams: std::ops::Range<usize>,
    pub(super) whole: Totals,
}

/// Runs with their labels, pooled: by variant, point and group, in the order in which they come.
/// Where there are no variants, the points of the grid are.
#[must_use]
pub fn pools(runs: impl IntoIterator<Item = (Label, Vec<Group>)>) -> Vec<Pool> {
    let mut pools: Vec<(Pool, Vec<Group>)> = Vec::new();
    for (label, groups) in runs {
        for group in groups {
            let is_it = |it: &(Pool, _)| it.0.label == label && it.0.group == group.name;
            let place = pools.iter().position(is_it).unwrap_or_else(|| {
                let pool = Pool::new(label.clone(), group.name.clone());
                pools.push((pool, Vec::new()));
                pools.len() - 1
            });
            pools[place].1.push(group);
        }
    }
    let without_variants = pools.iter().all(|(pool, _)| pool.label.variant.is_empty());
    let filled = pools.into_iter().map(|(mut pool, groups)| {
        if without_variants {
            std::mem::swap(&mut pool.label.variant, &mut pool.label.point);
        }
        pool.fill(groups);
        pool
    });
    filled.collect()
}

impl Pool {
    fn new(label: Label, group: String) -> Self {
        Self {
            label,
            group,
            repeats: 0,
            runs: Vec::new(),
            streams: Vec::new(),
            messages: Vec::new(),
        }
    }

    fn fill(&mut self, groups: Vec<Group>) {
        for (place, group) in groups.iter().enumerate() {
            if groups[..place].iter().any(|earlier| group.repeats(earlier)) {
                self.repeats += 1;
            } else {
                self.add(group);
            }
        }
        let in_order = |a: &(f64, u32), b: &(f64, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        self.messages.sort_unstable_by(in_order);
    }

    fn add(&mut self, group: &Group) {
        let begin = self.streams.len();
        for Stream {
            totals,
            delivery_ms,
        } in &group.streams
        {
            let stream = self.streams.len() as u32;
            self.messages
                .extend(delivery_ms.iter().map(|latency_ms| (*latency_ms, stream)));
            self.streams.push(*totals);
        }
        self.runs.push(Members {
            streams: begin..self.streams.len(),
            whole: group.whole,
        });
    }

    /// Variant, point of the grid and group in a line.
    #[must_use]
    pub fn name(&self) -> String {
        let names = [&self.label.variant, &self.label.point, &self.group];
        let names = names.map(String::as_str).into_iter();
        let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        names.join(" ")
    }

    /// The number of its runs, repeats left out.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Delivery latency of each message in milliseconds, in order.
    pub fn delivery_ms(&self) -> impl Iterator<Item = f64> {
        self.messages.iter().map(|(latency_ms, _)| *latency_ms)
    }

    /// The measure's value for all of it.
    #[must_use]
    pub fn value(&self, measure: &RunMeasure) -> Option<f64> {
        match measure.of {
            Of::Delivery(percentile) => {
                quantile(&self.messages, percentile.share).map(|message| message.0)
            }
            Of::Totals(of) => of(&self.totals()),
        }
    }

    /// All its runs and their streams together.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        let wholes = self.runs.iter().map(|run| run.whole);
        wholes
            .chain(self.streams.iter().copied())
            .for_each(|it| totals += it);
        totals
    }
}
