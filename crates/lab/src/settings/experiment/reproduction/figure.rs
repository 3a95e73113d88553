//! Published tables and figures, as files describe them.

use std::convert::Infallible;
use std::str::FromStr;

use pillion_cli::settings::text::Text;
use pillion_stats::report::Stream;
use serde::Deserialize;

use super::Selector;
use crate::settings::experiment::expression;
use crate::{MeasureError, MeasureRef};

/// A table as it was published, with its own columns and lines.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PublishedTable {
    /// What it shows.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// Seconds that the published counts are of.
    pub duration: Option<f64>,
    /// Its columns, from the left.
    pub columns: Vec<Heading>,
    /// Its lines, from the top.
    pub lines: Vec<Line>,
}

/// A column's part in what its cells show.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Heading {
    /// What the column is called.
    pub label: String,
    /// The measure's name, or what stands behind the line's, as in `p50`.
    pub measure: String,
    /// Of which group; empty where the other says it, or a run has but one.
    pub group: String,
    /// Of which runs.
    pub runs: Selector,
    /// The cells are counts, which grow with the time that a run lasts.
    pub counts: bool,
}

/// A line: its part in what its cells show, and what was published.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Line {
    /// What the line is called.
    pub label: String,
    /// The measure's name, or the beginning of it.
    pub measure: String,
    /// Of which group; empty where the other says it, or a run has but one.
    pub group: String,
    /// Of which runs.
    pub runs: Selector,
    /// The cells are counts, which grow with the time that a run lasts.
    pub counts: bool,
    /// What was published in each column; empty where nothing was.
    #[serde(deserialize_with = "published")]
    pub published: Vec<Cell>,
}

/// What a published table says in a cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// A number, in the measure's unit.
    Number(f64),
    /// What is no number, as in `<1`.
    Words(String),
}

/// A cell of a published table: what line and column say of it together.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedCell<'a> {
    /// The measure; of a table that was read from a file without mistakes it is always known.
    pub measure: Result<MeasureRef, MeasureError>,
    /// The runs.
    pub runs: Selector,
    /// The group; empty where a run has but one.
    pub group: &'a str,
    /// Of counts, the seconds that the published ones are of.
    pub duration_s: Option<f64>,
    /// What was published, if anything was.
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
    /// All the runs that it names.
    pub(super) fn selectors(&self) -> impl Iterator<Item = &Selector> {
        let columns = self.columns.iter().map(|column| &column.runs);
        columns.chain(self.lines.iter().map(|line| &line.runs))
    }

    /// A line's cells, from the left.
    pub fn cells<'a>(&'a self, line: &'a Line) -> impl Iterator<Item = PublishedCell<'a>> {
        self.columns.iter().enumerate().map(|(place, column)| {
            let counts = line.counts || column.counts;
            PublishedCell {
                measure: measure(line, column),
                runs: line.runs.with(&column.runs),
                group: match line.group.as_str() {
                    "" => &column.group,
                    group => group,
                },
                duration_s: self.duration.filter(|_| counts),
                published: line.published.get(place),
            }
        })
    }

    /// What is wrong with it, beside its selectors.
    pub(super) fn mistakes(&self) -> Vec<String> {
        let title = &self.title;
        let mut mistakes = Vec::new();
        let mut tell = |what: String| mistakes.push(format!("table `{title}`: {what}"));
        if self.columns.is_empty() || self.lines.is_empty() {
            tell("it has no columns or no lines; name both".to_owned());
        }
        if self.duration.is_some_and(|it| it <= 0.0 || !it.is_finite()) {
            tell("`duration` is how many seconds the published counts are of".to_owned());
        }
        for line in &self.lines {
            let (label, count) = (&line.label, line.published.len());
            let columns = self.columns.len();
            if count != columns && count > 0 {
                tell(format!(
                    "line `{label}` has {count} published cells for {columns} columns; \
                     give each, \"\" where nothing is known"
                ));
            }
            for column in &self.columns {
                let of = &column.label;
                match measure(line, column) {
                    _ if line.measure.is_empty() && column.measure.is_empty() => tell(format!(
                        "neither line `{label}` nor column `{of}` has a measure"
                    )),
                    Ok(measure) if !measure.is_value() => tell(format!(
                        "line `{label}`, column `{of}`: `{measure}` has more than one value"
                    )),
                    Ok(_) => {}
                    Err(error) => tell(format!("line `{label}`, column `{of}`: {error}")),
                }
                if !line.group.is_empty() && !column.group.is_empty() {
                    tell(format!(
                        "both line `{label}` and column `{of}` have a group; leave one out"
                    ));
                }
                if (line.counts || column.counts) && self.duration.is_none() {
                    tell(format!(
                        "line `{label}`, column `{of}` has counts; say by the table's \
                         `duration` what time they are of"
                    ));
                }
            }
        }
        mistakes
    }
}

/// The measure of a cell: the line's part of its name, and the column's.
fn measure(line: &Line, column: &Heading) -> Result<MeasureRef, MeasureError> {
    let name = format!("{} {}", line.measure, column.measure);
    name.trim().parse()
}

fn published<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Cell>, D::Error> {
    let cells = Vec::<Text<Cell>>::deserialize(from)?;
    Ok(cells.into_iter().map(|Text(cell)| cell).collect())
}

/// A figure, as it is to be drawn.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sketch {
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
    pub series: Vec<Curve>,
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
    /// The line's points, once the experiment's runs are known.
    #[serde(skip)]
    pub points: Vec<(f64, f64)>,
}

impl Sketch {
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
pub struct Curve {
    /// What it is called.
    pub label: String,
    /// Of which runs.
    pub runs: Selector,
    /// Of which group; empty where a run has but one.
    pub group: String,
    /// The measure, if not the figure's: one in the same unit.
    pub measure: Option<MeasureRef>,
    /// What the streams are, once the experiment's runs are known.
    #[serde(skip)]
    pub stream: Option<Stream>,
}
