//! Runs of an experiment: what their groups experienced, and how they differ.
//!
//! A run has [`Group`]s of streams. [`Pool`]s put those of runs together that differ in nothing
//! but their seed; [`compare`] sets pools beside each other, with the uncertainty of every
//! difference, and [`comparison_page`] draws them.

mod compare;
mod measures;
mod report;

use std::cmp::Ordering;
use std::ops::AddAssign;

use pillion_stats::measure::quantile;
use pillion_stats::report::number::count;

use crate::run_key::{Part, RunKey};

pub use compare::{CompareError, Compared, Comparison, Difference, Section, compare, measure};
pub use measures::{DELIVERY_LATENCY, MEASURES, Of, Repairs, RunMeasure};
pub use report::{
    all_values_table, comparison_page, differences_table, groups_table, shown, values_table,
};

/// A group of streams in one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The group's name.
    pub name: String,
    /// Percentiles of delivery latency in milliseconds: those of
    /// [`Percentile::LATENCY`](pillion_stats::measure::Percentile::LATENCY), in that order.
    pub delivery_ms: [Option<f64>; 6],
    /// Each stream; without latencies where they were not read.
    pub streams: Vec<Stream>,
    /// What is known of the group or the run as a whole, not of single streams.
    pub whole: Totals,
}

/// A stream of a group.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stream {
    /// What it sent and received.
    pub totals: Totals,
    /// Delivery latency of each message in milliseconds, in any order.
    pub delivery_ms: Vec<f64>,
}

/// Sums over streams and runs, from which measures are made.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// Runs.
    pub runs: u64,
    /// Runs in which the group was bundled.
    pub bundled_runs: u64,
    /// For how long streams were to send, in seconds, summed up over runs.
    pub seconds: f64,
    /// Streams.
    pub streams: u64,
    /// Streams that did not end with the receiver's close after all was sent.
    pub failed_streams: u64,
    /// Messages that TCP took from the sender's application.
    pub sent_messages: u64,
    /// Messages that the receiver's application read.
    pub received_messages: u64,
    /// Payload that the receiver's application read.
    pub received_bytes: u64,
    /// Flows that ended well.
    pub completed_flows: u64,
    /// How long they took together, from when each began to connect until the receiver's close had
    /// come, in milliseconds.
    pub completion_ms: f64,
    /// Streams of which TCP did not tell what it sent.
    pub untold: u64,
    /// Segments that TCP retransmitted.
    pub retransmissions: u64,
    /// Payload that TCP sent, retransmissions included, bundles not.
    pub sent_bytes: u64,
    /// Of it, retransmitted.
    pub retransmitted_bytes: u64,
    /// Payload that bundles carried once more.
    pub bundled_bytes: u64,
    /// Losses that bundles hid.
    pub hidden_losses: u64,
    /// Of these, segments that came after all, only late.
    pub reordered: u64,
    /// Reactions to them.
    pub reactions: u64,
    /// Runs in which traces of both ends show which losses the group's bundles hid.
    pub traced_runs: u64,
    /// Losses that bundles hid, as the traces show.
    pub repaired_losses: u64,
    /// Of these, not found, at least.
    pub missed_losses: u64,
    /// Losses found that were none, at least.
    pub false_losses: u64,
    /// Packets of all groups on the way to the receiver.
    pub packets: u64,
    /// Packets that were dropped by the bottleneck's queue or lost in the emulator.
    pub lost_packets: u64,
}

impl Group {
    /// What it is as a whole, all streams together.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = self.whole;
        for stream in &self.streams {
            totals += stream.totals;
        }
        totals
    }

    /// Whether it is another one in every message: the same counts, and latencies that differ by
    /// less than 0.01 ms, for reading a clock takes time in the virtual engine, too.
    fn repeats(&self, other: &Self) -> bool {
        let alike = |(one, other): (&Stream, &Stream)| {
            let (messages, others) = (&one.delivery_ms, &other.delivery_ms);
            let mut pairs = messages.iter().zip(others);
            one.totals == other.totals
                && messages.len() == others.len()
                && pairs.all(|(one, other)| (one - other).abs() < 0.01)
        };
        let mut streams = self.streams.iter();
        self.whole == other.whole
            && self.streams.len() == other.streams.len()
            && streams.any(|it| !it.delivery_ms.is_empty())
            && self.streams.iter().zip(&other.streams).all(alike)
    }
}

impl Totals {
    /// What is to be said of a bundled stream's hidden losses: pillion found so many, and there
    /// were so many. One missed and one made up cancel out.
    #[must_use]
    pub fn detection(found: u64, repaired: u64) -> Self {
        Self {
            repaired_losses: repaired,
            missed_losses: repaired.saturating_sub(found),
            false_losses: found.saturating_sub(repaired),
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
        self.untold += other.untold;
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

/// The share of messages or of streams that may be missing before a run is in doubt: what is above
/// the highest percentile that is told beside the maximum, p99.9.
const MUCH: f64 = 0.001;

impl Totals {
    /// Messages that TCP took and the receiver's application never read.
    #[must_use]
    pub fn missing_messages(&self) -> u64 {
        self.sent_messages.saturating_sub(self.received_messages)
    }

    /// What to know of latencies where not all messages have one, as a sentence without a full
    /// stop; `None` where all arrived.
    #[must_use]
    pub fn survivors(&self) -> Option<String> {
        if self.missing_messages() == 0 && self.failed_streams == 0 {
            return None;
        }
        Some(format!(
            "{} of {} messages received, {} of {} streams failed; delivery latency is that of the \
             messages received",
            count(self.received_messages),
            count(self.sent_messages),
            count(self.failed_streams),
            count(self.streams),
        ))
    }

    /// Whether so much is missing that the percentiles are not those of all that was sent.
    #[must_use]
    pub fn is_much_missing(&self) -> bool {
        let is_much = |part: u64, whole: u64| part as f64 > whole as f64 * MUCH;
        is_much(self.missing_messages(), self.sent_messages)
            || is_much(self.failed_streams, self.streams)
    }
}

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
fn by_number(one: &str, other: &str) -> Ordering {
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
    runs: Vec<Members>,
    /// Of each stream, in the order of runs.
    streams: Vec<Totals>,
    /// All messages in order of delivery latency, in milliseconds, each with its stream's place.
    messages: Vec<(f64, u32)>,
}

/// A run's part in a pool.
#[derive(Debug, Clone)]
struct Members {
    streams: std::ops::Range<usize>,
    whole: Totals,
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

#[cfg(test)]
mod tests;
