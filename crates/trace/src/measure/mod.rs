//! Measures of connections: latency, loss, redundancy, throughput and goodput, fairness.
//!
//! A [`Meter`] observes the analysis of one or two traces and returns [`Results`] for each
//! connection, each [`Group`] and all. Counters come from the connections. Per-packet values are
//! added to [`Distribution`]s, in memory that does not grow with the trace except for one record
//! per time slice.
//!
//! With two cores, this takes two threads. On the analysis thread, the meter collects samples in
//! batches. On the other, a ledger adds them to the [`Measures`] of each connection. If four
//! batches wait, the analysis waits as well.

mod batch;
pub mod catalogue;
mod delay;
mod group;
mod latency;
mod ledger;
mod measures;
mod meter;
mod options;
mod packets;
mod pending_delays;
mod results;
mod slices;
mod table;
#[cfg(test)]
mod tests;

pub use delay::{Delay, UnknownDelays};
pub use group::{Group, GroupError};
pub use latency::{Blocking, Completion, HolBlock, Latency};
pub use measures::Measures;
pub use meter::Meter;
pub use options::MeterOptions;
pub use packets::{Loss, Spacing, Volume};
pub use pillion_stats::measure::Distribution;
pub use results::{
    ClockSummary, ConnectionResults, Fairness, FittedLine, GroupResults, Handshakes, Results,
    jain_index,
};
pub use slices::{Rates, Slice, Slices};
pub use table::{TableError, write_tables};
