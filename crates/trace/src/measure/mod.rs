//! What is measured of connections: latency, loss, redundancy, throughput and goodput, fairness.
//!
//! A [`Meter`] observes the analysis of one trace or of two, and gives [`Results`]: of each
//! connection, of each [`Group`] and of all. Counts come from the connections; what is measured
//! packet by packet is folded as it comes, in memory that does not grow with the trace once
//! [`Distribution`]s are full, save for one record per slice of time.
//!
//! Where there are two cores, that takes two threads. On the one that analyses, the meter notes in
//! a batch what it is told; on the other, a bookkeeper enters one batch after the other in a
//! ledger, which has the [`Measures`] of each connection. What is slow to enter holds the analysis
//! up once four batches wait.

mod batch;
pub mod catalogue;
mod delay;
mod group;
mod latency;
mod ledger;
mod measures;
mod meter;
mod packets;
mod pending_delays;
mod results;
mod slices;
mod table;
#[cfg(test)]
mod tests;

pub use delay::{Delay, Untold};
pub use group::{Group, GroupError};
pub use latency::{Blocker, Blocking, Completion, Latency};
pub use measures::Measures;
pub use meter::{Meter, Options};
pub use packets::{Loss, Spacing, Volume};
pub use pillion_stats::measure::Distribution;
pub use results::{Clocks, Fairness, Fitted, Handshakes, Results, Single, Together, jain_index};
pub use slices::{Rates, Slice, Slices};
pub use table::{TableError, write_tables};
