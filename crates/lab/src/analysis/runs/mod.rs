//! Runs of an experiment: what their groups experienced, and how they differ.
//!
//! A run has [`Group`]s of streams. [`Pool`]s put those of runs together that differ in nothing
//! but their seed; [`compare`] sets pools beside each other, with the uncertainty of every
//! difference, and [`comparison_page`] draws them.

mod compare;
mod measures;
mod page;
mod pool;
mod repairs;
mod resample;
mod survivors;
mod table;

use std::ops::AddAssign;

pub use compare::{CompareError, Compared, Comparison, Difference, Section, compare, measure};
pub use measures::{DELIVERY_LATENCY, MEASURES, Of, RunMeasure};
pub use page::comparison_page;
pub use pool::{Label, Pool, pools};
pub use repairs::Repairs;
pub use table::{all_values_table, differences_table, groups_table, shown, values_table};

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

#[cfg(test)]
mod tests;
