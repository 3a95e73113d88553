//! Published experiments, compared with measured runs.
//!
//! Each run has [`RunMeasures`]. A [`Claim`](crate::settings::experiment::Claim) is a published
//! number, and judging it gives a [`Verdict`], which is always computed. An [`ExperimentResult`] is
//! an experiment with its claims and figures, and [`page`] is the report.

mod figures;
mod measures;
mod messages;
mod page;
mod result;
mod slices;
mod tables;
mod verdict;

pub use measures::{GroupMeasures, MeasuredRun, RunMeasures};
pub use messages::{Datagrams, FirstTransmissions, Message, Messages};
pub use page::{page, summary_table};
pub use result::{ExperimentResult, runs_text};
pub use tables::{ComparedTable, files};
pub use verdict::{Estimate, JudgedClaim, Verdict};

#[cfg(test)]
mod tests;
