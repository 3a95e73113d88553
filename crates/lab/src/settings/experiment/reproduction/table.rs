use std::convert::Infallible;
use std::str::FromStr;

use serde::Deserialize;

use super::Selector;
use crate::settings::experiment::Name;
use crate::{MeasureError, MeasureRef};
use pillion_cli::settings::text::Text;

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
    /// Of which group.
    pub group: Option<Name>,
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
    /// Of which group.
    pub group: Option<Name>,
    /// Of which runs.
    pub runs: Selector,
    /// The cells are counts, which grow with the time that a run lasts.
    pub counts: bool,
    /// What was published in each column; empty where nothing was.
    #[serde(deserialize_with = "cells")]
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

    /// The runs of each cell.
    pub(super) fn cells(&self) -> impl Iterator<Item = Selector> {
        self.lines.iter().flat_map(|line| {
            let columns = self.columns.iter();
            columns.map(|column| line.runs.with(&column.runs))
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
                if line.group.is_some() && column.group.is_some() {
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
pub(crate) fn measure(line: &Line, column: &Heading) -> Result<MeasureRef, MeasureError> {
    let name = format!("{} {}", line.measure, column.measure);
    name.trim().parse()
}

fn cells<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Cell>, D::Error> {
    let cells = Vec::<Text<Cell>>::deserialize(from)?;
    Ok(cells.into_iter().map(|Text(cell)| cell).collect())
}
