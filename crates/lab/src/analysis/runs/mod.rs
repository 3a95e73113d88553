//! Measures of an experiment's runs, and the differences between variants.
//!
//! A run has [`Group`]s of streams. A [`Pool`] combines the runs that differ only in their seed.
//! [`compare`] compares pools, with an interval for every difference, and [`comparison_page`] draws
//! them.

mod compare;
mod measures;
mod report;

use std::cmp::Ordering;
use std::ops::AddAssign;

use pillion_stats::measure::quantile;
use pillion_stats::report::number::count;

use crate::run_key::{Part, RunKey};

pub use compare::{CompareError, Comparison, Difference, Section, VariantResult, compare, measure};
pub use measures::{DELIVERY_LATENCY, MEASURES, MeasureSource, RepairCounter, RunMeasure};
pub use report::{
    all_values_table, comparison_page, differences_table, format_value, groups_table, values_table,
};

/// A group of streams in one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The group's name.
    pub name: String,
    /// Percentiles of delivery latency in milliseconds, in the order of
    /// [`Percentile::LATENCY`](pillion_stats::measure::Percentile::LATENCY).
    pub delivery_ms: [Option<f64>; 6],
    /// Each stream. Latencies are empty if the records were not read.
    pub streams: Vec<Stream>,
    /// Totals that are known only for the group or the run, not per stream.
    pub run_totals: Totals,
}

/// A stream of a group.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stream {
    /// Totals of the stream.
    pub totals: Totals,
    /// Delivery latency of each message in milliseconds, in any order.
    pub delivery_ms: Vec<f64>,
}

/// Sums over streams and runs, from which measures are computed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// Number of runs.
    pub runs: u64,
    /// Runs in which the group was bundled.
    pub bundled_runs: u64,
    /// Sending time in seconds, summed over runs.
    pub seconds: f64,
    /// Number of streams.
    pub streams: u64,
    /// Streams that did not end with the receiver's close after all data was sent.
    pub failed_streams: u64,
    /// Messages that TCP accepted from the sender's application.
    pub sent_messages: u64,
    /// Messages that the receiver's application read.
    pub received_messages: u64,
    /// Payload bytes that the receiver's application read.
    pub received_bytes: u64,
    /// Flows that completed.
    pub completed_flows: u64,
    /// Total time of completed flows in milliseconds, from the connection attempt to the receiver's
    /// close.
    pub completion_ms: f64,
    /// Streams without TCP_INFO about what was sent.
    pub without_tcp_info: u64,
    /// Segments that TCP retransmitted.
    pub retransmissions: u64,
    /// Payload bytes that TCP sent, including retransmissions but not bundles.
    pub sent_bytes: u64,
    /// Retransmitted payload bytes.
    pub retransmitted_bytes: u64,
    /// Payload bytes that bundles repeated.
    pub bundled_bytes: u64,
    /// Losses that bundles hid from TCP, as counted by pillion.
    pub hidden_losses: u64,
    /// Segments counted as hidden losses that arrived late.
    pub reordered: u64,
    /// Reactions of congestion control to hidden losses.
    pub reactions: u64,
    /// Runs in which both traces show the losses that the group's bundles repaired.
    pub traced_runs: u64,
    /// Losses that bundles repaired, by the traces.
    pub repaired_losses: u64,
    /// Lower bound of repaired losses that pillion did not count.
    pub missed_losses: u64,
    /// Lower bound of hidden losses that did not occur.
    pub false_losses: u64,
    /// Packets of all groups toward the receiver.
    pub packets: u64,
    /// Packets that the bottleneck's queue dropped or the emulator lost.
    pub lost_packets: u64,
}

impl Group {
    /// Returns the totals of the group and all its streams.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = self.run_totals;
        for stream in &self.streams {
            totals += stream.totals;
        }
        totals
    }

    /// Whether both are equal in every message: same totals, and latencies within 0.01 ms, because
    /// reading the clock takes time in the virtual engine, too.
    fn repeats(&self, other: &Self) -> bool {
        let is_alike = |(one, other): (&Stream, &Stream)| {
            let (messages, others) = (&one.delivery_ms, &other.delivery_ms);
            let mut pairs = messages.iter().zip(others);
            one.totals == other.totals
                && messages.len() == others.len()
                && pairs.all(|(one, other)| (one - other).abs() < 0.01)
        };
        let mut streams = self.streams.iter();
        self.run_totals == other.run_totals
            && self.streams.len() == other.streams.len()
            && streams.any(|it| !it.delivery_ms.is_empty())
            && self.streams.iter().zip(&other.streams).all(is_alike)
    }
}

impl Totals {
    /// Returns the totals of a stream for which pillion counted `counted` hidden losses while the
    /// traces show `repaired` ones. A missed loss and a false one cancel out.
    #[must_use]
    pub fn loss_detection(counted: u64, repaired: u64) -> Self {
        Self {
            repaired_losses: repaired,
            missed_losses: repaired.saturating_sub(counted),
            false_losses: counted.saturating_sub(repaired),
            ..Self::default()
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.bundled_runs += other.bundled_runs;
        self.seconds += other.seconds;
        self.streams += other.streams;
        self.failed_streams += other.failed_streams;
        self.sent_messages += other.sent_messages;
        self.received_messages += other.received_messages;
        self.received_bytes += other.received_bytes;
        self.completed_flows += other.completed_flows;
        self.completion_ms += other.completion_ms;
        self.without_tcp_info += other.without_tcp_info;
        self.retransmissions += other.retransmissions;
        self.sent_bytes += other.sent_bytes;
        self.retransmitted_bytes += other.retransmitted_bytes;
        self.bundled_bytes += other.bundled_bytes;
        self.hidden_losses += other.hidden_losses;
        self.reordered += other.reordered;
        self.reactions += other.reactions;
        self.traced_runs += other.traced_runs;
        self.repaired_losses += other.repaired_losses;
        self.missed_losses += other.missed_losses;
        self.false_losses += other.false_losses;
        self.packets += other.packets;
        self.lost_packets += other.lost_packets;
    }
}

/// The maximum share of missing messages or failed streams without a warning. Above it, even p99.9
/// would change.
const MAX_MISSING_SHARE: f64 = 0.001;

impl Totals {
    /// Returns the number of messages that TCP accepted and the receiver's application never read.
    #[must_use]
    pub fn missing_messages(&self) -> u64 {
        self.sent_messages.saturating_sub(self.received_messages)
    }

    /// Describes missing messages and failed streams, without a full stop; `None` if all arrived.
    #[must_use]
    pub fn missing_note(&self) -> Option<String> {
        if self.missing_messages() == 0 && self.failed_streams == 0 {
            return None;
        }
        Some(format!(
            "{} of {} messages received, {} of {} streams failed; delivery latency covers only \
             received messages",
            count(self.received_messages),
            count(self.sent_messages),
            count(self.failed_streams),
            count(self.streams),
        ))
    }

    /// Whether so many messages or streams are missing that percentiles are affected.
    #[must_use]
    pub fn exceeds_missing_limit(&self) -> bool {
        let exceeds_limit =
            |part: u64, run_totals: u64| part as f64 > run_totals as f64 * MAX_MISSING_SHARE;
        exceeds_limit(self.missing_messages(), self.sent_messages)
            || exceeds_limit(self.failed_streams, self.streams)
    }
}

/// The name of a run without its seed, by which runs are combined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The variant's name; empty without variants.
    pub variant: String,
    /// The grid's parameters, as in `loss=2,rtt=150`.
    pub point: String,
}

impl Label {
    /// Splits a run's name, as in `plain,loss=2,seed=1`.
    #[must_use]
    pub fn from_run_name(run: &str) -> Self {
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

/// Compares points of a grid: numerically, and numbers before words.
fn compare_points(one: &str, other: &str) -> Ordering {
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

/// A group of one variant, with the runs of all seeds.
#[derive(Debug, Clone)]
pub struct Pool {
    /// The variant and the point of the grid.
    pub label: Label,
    /// The group's name.
    pub group: String,
    /// The number of omitted runs. They repeat another run in every message, because the seed
    /// changed nothing, and would make intervals too narrow.
    pub repeats: usize,
    /// One entry per run.
    runs: Vec<Members>,
    /// The totals of each stream, in the order of runs.
    streams: Vec<Totals>,
    /// All messages sorted by delivery latency in milliseconds, each with the index of its stream.
    messages: Vec<(f64, u32)>,
}

/// A run's part of a pool.
#[derive(Debug, Clone)]
struct Members {
    streams: std::ops::Range<usize>,
    run_totals: Totals,
}

/// Combines runs by variant, point and group, in order of appearance. Without variants, the points
/// of the grid become the variants.
#[must_use]
pub fn pools(runs: impl IntoIterator<Item = (Label, Vec<Group>)>) -> Vec<Pool> {
    let mut pools: Vec<(Pool, Vec<Group>)> = Vec::new();
    for (label, groups) in runs {
        for group in groups {
            let matches = |it: &(Pool, _)| it.0.label == label && it.0.group == group.name;
            let index = pools.iter().position(matches).unwrap_or_else(|| {
                let pool = Pool::new(label.clone(), group.name.clone());
                pools.push((pool, Vec::new()));
                pools.len() - 1
            });
            pools[index].1.push(group);
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
        for (index, group) in groups.iter().enumerate() {
            if groups[..index].iter().any(|earlier| group.repeats(earlier)) {
                self.repeats += 1;
            } else {
                self.add(group);
            }
        }
        let in_order = |a: &(f64, u32), b: &(f64, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        self.messages.sort_unstable_by(in_order);
    }

    fn add(&mut self, group: &Group) {
        let first = self.streams.len();
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
            streams: first..self.streams.len(),
            run_totals: group.run_totals,
        });
    }

    /// Returns variant, point of the grid and group in one line.
    #[must_use]
    pub fn name(&self) -> String {
        let names = [&self.label.variant, &self.label.point, &self.group];
        let names = names.map(String::as_str).into_iter();
        let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        names.join(" ")
    }

    /// Returns the number of runs, without repeats.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns the delivery latency of each message in milliseconds, in ascending order.
    pub fn delivery_ms(&self) -> impl Iterator<Item = f64> {
        self.messages.iter().map(|(latency_ms, _)| *latency_ms)
    }

    /// Returns the measure's value over all runs.
    #[must_use]
    pub fn value(&self, measure: &RunMeasure) -> Option<f64> {
        match measure.of {
            MeasureSource::Delivery(percentile) => {
                quantile(&self.messages, percentile.share).map(|message| message.0)
            }
            MeasureSource::Totals(of) => of(&self.totals()),
        }
    }

    /// Returns the totals of all runs and streams.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        let wholes = self.runs.iter().map(|run| run.run_totals);
        wholes
            .chain(self.streams.iter().copied())
            .for_each(|it| totals += it);
        totals
    }
}

#[cfg(test)]
mod tests;
