//! Published experiments, set beside what runs of today give.
//!
//! Of each run a [`Digest`] is kept. A [`Claim`] is what was published of a measure; judging it
//! gives a [`Verdict`], which is computed and never written by hand. A [`Row`] is one experiment
//! with its claims and figures, and [`page`] the report of all of them.

mod answer;
mod claim;
mod derived;
mod digest;
mod estimate;
mod explained;
mod fairness;
mod figures;
mod files;
mod in_step;
mod messages;
mod numbers;
mod page;
mod parameters;
mod quantiles;
mod row;
mod seeds;
mod slices;
mod sojourn;
mod subject;
mod tables;
mod verdict;

pub use claim::{Claim, Statement};
pub use digest::{Digest, GroupDigest};
pub use estimate::Estimate;
pub use figures::{Curve, Kind, Sketch};
pub use files::files;
pub use messages::{Message, Messages};
use numbers::published_csv;
pub use page::{page, summary_table};
pub use row::{Row, which};
pub use slices::Datagrams;
pub use sojourn::FirstSendings;
pub use subject::{DigestedRun, Subject};
pub use tables::{FilledTable, PublishedCell, PublishedLine, PublishedTable, PublishedValue};
pub use verdict::{Judged, Verdict};

#[cfg(test)]
mod tests;
