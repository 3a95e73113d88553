//! Numbers and their presentation.
//!
//! * [`measure`]: measures, distributions, quantiles, confidence intervals.
//! * [`report`]: tables, figures, CSV, and HTML pages.
//! * [`names`]: user-controlled names without terminal control characters.

pub mod measure;
pub mod names;
pub mod report;
