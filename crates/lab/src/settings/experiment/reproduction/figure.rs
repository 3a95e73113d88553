//! Published tables and figures in experiment files.

use std::convert::Infallible;
use std::str::FromStr;

use pillion_cli::settings::text::Text;
use pillion_stats::report::StreamKind;
use serde::Deserialize;

use super::Selector;
use crate::settings::experiment::expression;
use crate::{MeasureError, MeasureRef};

/// Published table, with its own columns and lines.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PublishedTable {
    /// Heading.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// Seconds that the published counts cover.
    pub duration: Option<f64>,
    /// Columns from the left.
    pub columns: Vec<Heading>,
    /// Lines from the top.
    pub lines: Vec<Line>,
}

/// Column, with its part of the measure and of the selection.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Heading {
    /// Heading of the column.
    pub label: String,
    /// Name of the measure, or the end of it after the line's part, as in `p50`.
    pub measure: String,
    /// Group; empty if the line sets it, or if the runs have one group only.
    pub group: String,
    /// Selector of the runs.
    pub runs: Selector,
    /// The cells are counts, which grow with the duration of a run.
    pub counts: bool,
}

/// Line, with its part of the measure and of the selection, and the published values.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Line {
    /// Heading of the line.
    pub label: String,
    /// Name of the measure, or the start of it.
    pub measure: String,
    /// Group; empty if the column sets it, or if the runs have one group only.
    pub group: String,
    /// Selector of the runs.
    pub runs: Selector,
    /// The cells are counts, which grow with the duration of a run.
    pub counts: bool,
    /// Published value for each column; `""` without one.
    #[serde(deserialize_with = "published")]
    pub published: Vec<Cell>,
}

/// Published value of a cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Number in the measure's unit.
    Number(f64),
    /// Text, as in `<1`.
    Words(String),
}

/// Cell of a published table: line and column combined.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedCell<'a> {
    /// Measure; always valid after a file was loaded without mistakes.
    pub measure: Result<MeasureRef, MeasureError>,
    /// Selector of the runs.
    pub runs: Selector,
    /// Group; empty if the runs have one group only.
    pub group: &'a str,
    /// Seconds that published counts cover; `None` for other values.
    pub duration_s: Option<f64>,
    /// Published value, if any.
    pub published: Option<&'a Cell>,
}

impl FromStr for Cell {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let number = text.parse().ok().filter(|it: &f64| it.is_finite());
        Ok(number.map_or_else(|| Self::Words(text.to_owned()), Self::Number))
    }
}

impl PublishedTable {
    /// Returns all selectors of the table.
    pub(super) fn selectors(&self) -> impl Iterator<Item = &Selector> {
        let columns = self.columns.iter().map(|column| &column.runs);
        columns.chain(self.lines.iter().map(|line| &line.runs))
    }

    /// Returns the cells of a line from the left.
    pub fn cells<'a>(&'a self, line: &'a Line) -> impl Iterator<Item = PublishedCell<'a>> {
        self.columns.iter().enumerate().map(|(index, column)| {
            let counts = line.counts || column.counts;
            PublishedCell {
                measure: measure(line, column),
                runs: line.runs.with(&column.runs),
                group: match line.group.as_str() {
                    "" => &column.group,
                    group => group,
                },
                duration_s: self.duration.filter(|_| counts),
                published: line.published.get(index),
            }
        })
    }

    /// Returns the mistakes other than those of selectors.
    pub(super) fn mistakes(&self) -> Vec<String> {
        let title = &self.title;
        let mut mistakes = Vec::new();
        let mut report = |what: String| mistakes.push(format!("table `{title}`: {what}"));
        if self.columns.is_empty() || self.lines.is_empty() {
            report("missing columns or lines; set both".to_owned());
        }
        if self.duration.is_some_and(|it| it <= 0.0 || !it.is_finite()) {
            report(
                "`duration` must be above 0: the seconds that the published counts cover"
                    .to_owned(),
            );
        }
        for line in &self.lines {
            let (label, count) = (&line.label, line.published.len());
            let columns = self.columns.len();
            if count != columns && count > 0 {
                report(format!(
                    "line `{label}` has {count} published cells for {columns} columns; \
                     give one per column, \"\" for unknown ones"
                ));
            }
            for column in &self.columns {
                let of = &column.label;
                match measure(line, column) {
                    _ if line.measure.is_empty() && column.measure.is_empty() => report(format!(
                        "neither line `{label}` nor column `{of}` has a measure"
                    )),
                    Ok(measure) if !measure.is_value() => report(format!(
                        "line `{label}`, column `{of}`: `{measure}` has several values"
                    )),
                    Ok(_) => {}
                    Err(error) => report(format!("line `{label}`, column `{of}`: {error}")),
                }
                if !line.group.is_empty() && !column.group.is_empty() {
                    report(format!(
                        "both line `{label}` and column `{of}` have a group; remove one"
                    ));
                }
                if (line.counts || column.counts) && self.duration.is_none() {
                    report(format!(
                        "line `{label}`, column `{of}` has counts; set the table's \
                         `duration`, the seconds that they cover"
                    ));
                }
            }
        }
        mistakes
    }
}

/// Returns the measure of a cell: the line's part and the column's.
fn measure(line: &Line, column: &Heading) -> Result<MeasureRef, MeasureError> {
    let name = format!("{} {}", line.measure, column.measure);
    name.trim().parse()
}

fn published<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Cell>, D::Error> {
    let cells = Vec::<Text<Cell>>::deserialize(from)?;
    Ok(cells.into_iter().map(|Text(cell)| cell).collect())
}

/// Figure to draw.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sketch {
    /// Heading.
    #[serde(default)]
    pub title: String,
    /// Published figure that it reproduces.
    #[serde(default)]
    pub source: String,
    /// Form of the drawing.
    #[serde(default)]
    pub kind: FigureKind,
    /// Measure, as in `ack_latency_ms`; kind `values` needs a statistic.
    pub measure: MeasureRef,
    /// Name of the measure on its axis.
    #[serde(default)]
    pub label: String,
    /// Curves.
    #[serde(default)]
    pub series: Vec<Curve>,
    /// Lines to draw in addition, in kinds `values` and `series`.
    #[serde(default)]
    pub expected: Vec<Expected>,
    /// Part of run names on the horizontal axis, as in `n`. Kind `values` requires it; kind `boxes`
    /// draws one box per value.
    #[serde(default)]
    pub x: Option<String>,
    /// Label of the horizontal axis, with the unit.
    #[serde(default)]
    pub x_label: Option<String>,
    /// Start of a CDF's vertical axis, as a share.
    #[serde(default)]
    pub from: Option<f64>,
    /// End of the horizontal axis.
    #[serde(default)]
    pub max: Option<f64>,
    /// Whether the horizontal axis is logarithmic.
    #[serde(default)]
    pub log: bool,
}

/// Additional line, such as a demand or a capacity.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Expected {
    /// Label; empty if the other labels are enough.
    pub label: String,
    /// Expression of `x` in the measure's unit, as in `= 9600 * n`.
    pub value: String,
    /// Points of the line, once the runs are known.
    #[serde(skip)]
    pub points: Vec<(f64, f64)>,
}

impl Sketch {
    /// Evaluates an additional line at `at`; `None` if the result is not a number.
    #[must_use]
    pub fn expected_at(&self, expected: &Expected, at: f64) -> Option<f64> {
        expression::at(&expected.value, self.x_variable()?, at)
    }

    /// Returns the variable of expressions; in kind `series` it is `t`, the time in seconds.
    fn x_variable(&self) -> Option<&str> {
        match self.kind {
            FigureKind::Series => Some("t"),
            _ => self.x.as_deref(),
        }
    }

    /// Returns the mistakes other than those of selectors.
    pub(super) fn mistakes(&self) -> Vec<String> {
        let title = &self.title;
        let mut mistakes = Vec::new();
        let is_of_values = self.kind == FigureKind::Values;
        let may_have_x = is_of_values || self.kind == FigureKind::Boxes;
        if is_of_values && self.x.is_none() || self.x.is_some() && !may_have_x {
            mistakes.push(format!(
                "figure `{title}`: `x` is required by kind \"values\", and possible for \"boxes\" only"
            ));
        }
        let own = self.series.iter().filter_map(|it| it.measure.as_ref());
        for measure in own.chain([&self.measure]) {
            let (can_draw, drawable) = match self.kind {
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
            if !can_draw {
                mistakes.push(format!(
                    "figure `{title}`: this kind cannot draw `{measure}`; it draws {drawable}"
                ));
            }
        }
        if let Some(from) = self.from
            && (self.kind != FigureKind::Cdf || !(0.0..1.0).contains(&from))
        {
            mistakes.push(format!(
                "figure `{title}`: `from` belongs to kind \"cdf\", from 0 to less than 1"
            ));
        }
        let x = self.x_variable().unwrap_or("n");
        for expected in &self.expected {
            let value = &expected.value;
            if !is_of_values && self.kind != FigureKind::Series {
                mistakes.push(format!(
                    "figure `{title}`: `expected` belongs to kinds \"values\" and \"series\""
                ));
            } else if self.expected_at(expected, 1.0).is_none() {
                mistakes.push(format!(
                    "figure `{title}`: `{value}` must be an expression of `{x}`, as \
                     in \"= 9600 * {x}\""
                ));
            }
        }
        mistakes
    }
}

/// Form of a figure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// Share of values that are at most each one.
    #[default]
    Cdf,
    /// Share of values above each one, on a logarithmic axis.
    Ccdf,
    /// One value per parameter.
    Values,
    /// One dot per stream of each curve.
    Dots,
    /// One box per curve, or per value of `x`: the 5th, 25th, 50th, 75th and 95th percentile.
    Boxes,
    /// Rate or latency over time, in slices, of each curve's first run.
    Series,
}

/// Curve of a figure.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Curve {
    /// Label.
    pub label: String,
    /// Selector of the runs.
    pub runs: Selector,
    /// Group; empty if the runs have one group only.
    pub group: String,
    /// Measure in the same unit, if it differs from the figure's.
    pub measure: Option<MeasureRef>,
    /// Kind of the streams, which determines the colour, once the runs are known.
    #[serde(skip)]
    pub stream: Option<StreamKind>,
}
