use serde::Deserialize;

use super::Selector;
use crate::MeasureRef;
use crate::settings::experiment::{Name, expression};

/// A figure.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Drawn {
    /// What it shows.
    #[serde(default)]
    pub title: String,
    /// The published figure.
    #[serde(default)]
    pub source: String,
    /// How it is drawn.
    #[serde(default)]
    pub kind: FigureKind,
    /// The measure, as in `ack_latency_ms`; with a statistic where values are drawn.
    pub measure: MeasureRef,
    /// What the measure is called.
    #[serde(default)]
    pub label: String,
    /// Its curves.
    #[serde(default)]
    pub series: Vec<Series>,
    /// Of values and of a series: what is to be expected, drawn beside them.
    #[serde(default)]
    pub expected: Vec<Expected>,
    /// Of values: which part of a run's name they are drawn over, as in `n`. Of boxes: which part
    /// of a run's name each curve has one box for each value of, if any.
    #[serde(default)]
    pub over: Option<String>,
    /// What that is, with its unit.
    #[serde(default)]
    pub over_label: Option<String>,
    /// Of a CDF: the share at which the vertical axis begins.
    #[serde(default)]
    pub from: Option<f64>,
    /// The horizontal axis ends there.
    #[serde(default)]
    pub max: Option<f64>,
    /// The horizontal axis is logarithmic.
    #[serde(default)]
    pub log: bool,
}

/// A line of what is to be expected.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Expected {
    /// What it is called; empty where the figure's other labels say it.
    pub label: String,
    /// An expression of what the values are drawn over, in the measure's unit, as in `= 9600 * n`.
    pub value: String,
}

impl Drawn {
    /// What is to be expected at this value of what the figure's values are drawn over; none where
    /// the expression comes to no number.
    #[must_use]
    pub fn expected_at(&self, expected: &Expected, at: f64) -> Option<f64> {
        expression::at(&expected.value, self.along()?, at)
    }

    /// What an expression of what is to be expected calls the horizontal axis: in a series it is
    /// the time in seconds.
    fn along(&self) -> Option<&str> {
        match self.kind {
            FigureKind::Series => Some("t"),
            _ => self.over.as_deref(),
        }
    }

    /// What is wrong with it, beside its selectors.
    pub(super) fn mistakes(&self) -> Vec<String> {
        let title = &self.title;
        let mut mistakes = Vec::new();
        let is_of_values = self.kind == FigureKind::Values;
        let may_be_over = is_of_values || self.kind == FigureKind::Boxes;
        if is_of_values && self.over.is_none() || self.over.is_some() && !may_be_over {
            mistakes.push(format!(
                "figure `{title}`: `over` belongs to the kinds \"values\", which wants it, and \
                 \"boxes\""
            ));
        }
        let own = self.series.iter().filter_map(|it| it.measure.as_ref());
        for measure in own.chain([&self.measure]) {
            let (fits, drawn) = match self.kind {
                FigureKind::Cdf | FigureKind::Ccdf => (
                    measure.is_distribution(),
                    "distributions, as \"ack_latency_ms\"",
                ),
                FigureKind::Boxes => (
                    measure.is_distribution() || measure.is_of_slices(),
                    "distributions, as \"ack_latency_ms\", or slices of time",
                ),
                FigureKind::Values => (
                    measure.is_value(),
                    "single values, as \"ack_latency_ms p97\"",
                ),
                FigureKind::Dots => (
                    measure.is_of_streams(),
                    "single streams; let the measure end with \" of streams\"",
                ),
                FigureKind::Series => (
                    measure.is_of_seconds(),
                    "slices of time; let the measure end with \" of slices\"",
                ),
            };
            if !fits {
                mistakes.push(format!(
                    "figure `{title}`: its kind cannot draw `{measure}`, but {drawn}"
                ));
            }
        }
        if let Some(from) = self.from
            && (self.kind != FigureKind::Cdf || !(0.0..1.0).contains(&from))
        {
            mistakes.push(format!(
                "figure `{title}`: `from` is where the axis of the kind \"cdf\" begins, from 0 to \
                 less than 1"
            ));
        }
        let over = self.along().unwrap_or("n");
        for expected in &self.expected {
            let value = &expected.value;
            if !is_of_values && self.kind != FigureKind::Series {
                mistakes.push(format!(
                    "figure `{title}`: `expected` belongs to the kinds \"values\" and \"series\""
                ));
            } else if self.expected_at(expected, 1.0).is_none() {
                mistakes.push(format!(
                    "figure `{title}`: `{value}` is no expression of `{over}` alone; give one, as \
                     in \"= 9600 * {over}\""
                ));
            }
        }
        mistakes
    }
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
    /// A dot for each stream of each curve.
    Dots,
    /// A box for each curve, or for each value that it is drawn over: the 5th, 25th, 50th, 75th and
    /// 95th percentile.
    Boxes,
    /// A rate over time, in slices, of the first run of each curve.
    Series,
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
    /// The measure, if not the figure's: one in the same unit.
    pub measure: Option<MeasureRef>,
}
