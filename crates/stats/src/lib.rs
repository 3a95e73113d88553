//! Numbers and how they are shown.
//!
//! * [`measure`]: what a measure is; distributions, quantiles, intervals of confidence.
//! * [`report`]: tables, figures, CSV, and pages of them.
//! * [`names`]: names that anybody can give, shown so that no terminal or page takes them for orders; and
//!   those of an experiment's runs.

pub mod measure;
pub mod names;
pub mod report;
