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

mod above;
mod batch;
mod blocking;
mod bookkeeper;
pub mod catalogue;
mod completion;
mod delay;
mod fairness;
mod finished;
mod group;
mod latency;
mod ledger;
mod loss;
mod measures;
mod meter;
#[cfg(test)]
mod property;
mod results;
mod rows;
mod slices;
mod spacing;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod undated;
mod volume;

pub use blocking::{Blocker, Blocking};
pub use completion::Completion;
pub use delay::{Delay, Untold};
pub use fairness::{Fairness, jain_index};
pub use group::{Group, GroupError};
pub use latency::Latency;
pub use loss::Loss;
pub use measures::Measures;
pub use meter::{Meter, Options};
pub use pillion_stats::measure::Distribution;
pub use results::{Clocks, Fitted, Handshakes, Results, Single, Together};
pub use slices::{Rates, Slice, Slices};
pub use spacing::Spacing;
pub use table::{TableError, write_tables};
pub use volume::Volume;
