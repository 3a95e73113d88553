//! Published experiments, set beside what runs of today give.
//!
//! Of each run a [`Digest`] is kept. A [`Claim`](crate::settings::experiment::Claim) is what was
//! published of a measure; judging it gives a [`Verdict`], which is computed and never written by
//! hand. A [`Row`] is one experiment with its claims and figures, and [`page`] the report of all of
//! them.

mod digest;
mod figures;
mod messages;
mod page;
mod row;
mod slices;
mod tables;
mod verdict;

pub use digest::{Digest, GroupDigest};
pub use messages::{FirstSendings, Message, Messages};
pub use page::{page, summary_table};
pub use row::{DigestedRun, Row, which};
pub use slices::Datagrams;
pub use tables::{FilledTable, files};
pub use verdict::{Estimate, Judged, Verdict};

#[cfg(test)]
mod tests;
