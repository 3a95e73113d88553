use serde::Deserialize;

use super::Selector;
use crate::experiment::Name;

/// A figure.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Drawn {
    /// What it shows.
    pub title: String,
    /// The published figure.
    pub source: String,
    /// How it is drawn.
    pub kind: FigureKind,
    /// The measure's name, as in `ack_latency_ms`; with a percentile where values are drawn.
    pub measure: String,
    /// What the measure is called.
    pub label: String,
    /// Its curves.
    pub series: Vec<Series>,
    /// Of values: which part of a run's name they are drawn over, as in `n`.
    pub over: Option<String>,
    /// What that is, with its unit.
    pub over_label: Option<String>,
    /// The horizontal axis ends there.
    pub max: Option<f64>,
    /// The horizontal axis is logarithmic.
    pub log: bool,
}

/// How a figure is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// The share of values that do not exceed each one.
    #[default]
    Cdf,
    /// The share of values that exceed each one, on a logarithmic axis.
    Ccdf,
    /// One value for each parameter.
    Values,
    /// A box for each curve: the 5th, 25th, 50th, 75th and 95th percentile.
    Boxes,
}

/// A curve of a figure.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Series {
    /// What it is called.
    pub label: String,
    /// Of which runs.
    pub runs: Selector,
    /// Of which group.
    pub group: Option<Name>,
}
