//! Published tables, in their own columns, with ours beside each number.

use pillion_stats::measure::Unit;
use pillion_stats::report::{Column, Table, csv_field, number};

use super::{DigestedRun, Estimate, Row, Subject};
use crate::measure_ref::MeasureRef;
use crate::run_key::Selector;

/// A published table, to be filled.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PublishedTable {
    /// What it shows.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// What its columns are called.
    pub columns: Vec<String>,
    /// Its lines.
    pub lines: Vec<PublishedLine>,
}

/// A line of a published table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PublishedLine {
    /// What it is called.
    pub label: String,
    /// One for each column.
    pub cells: Vec<PublishedCell>,
}

/// A cell of a published table.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedCell {
    /// The measure.
    pub measure: MeasureRef,
    /// What is measured.
    pub subject: Subject,
    /// What ours is multiplied by: of counts, the time that the published ones are of over that of
    /// the runs.
    pub factor: f64,
    /// What was published.
    pub published: PublishedValue,
}

/// What a published cell says.
#[derive(Debug, Clone, PartialEq)]
pub enum PublishedValue {
    /// A number, in the measure's unit.
    Number(f64),
    /// What is no number; empty where nothing is known.
    Words(String),
}

/// A published table with ours beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct FilledTable {
    /// What it shows, and where it was published.
    pub title: String,
    /// Below each published line, ours: of today, and with each cause as it was then.
    pub table: Table,
    /// Every cell, a line each: what was published, and ours with the ends of its interval.
    pub csv: String,
}

impl PublishedCell {
    fn estimate(&self, runs: &[DigestedRun], more: &Selector) -> Option<Estimate> {
        let runs = runs.iter().filter(|run| self.subject.is_of(run, more));
        let values = runs.filter_map(|run| self.subject.value(run, &self.measure));
        let values: Vec<_> = values.map(|value| value * self.factor).collect();
        Estimate::of(&values)
    }

    fn shown(&self, value: f64) -> String {
        match self.measure.unit() {
            Unit::Share => format!("{}\u{a0}%", number::millis(value * 100.0)),
            Unit::Milliseconds => number::millis(value),
            Unit::Bytes if value < 1e5 => format!("{}\u{a0}B", number::amount(value.round())),
            Unit::Bytes => number::bytes(value),
            Unit::BitPerSecond => number::rate(value),
            Unit::Number if self.measure.is_index() => format!("{value:.3}"),
            Unit::Number => number::amount(value),
        }
    }

    fn published(&self) -> String {
        match &self.published {
            PublishedValue::Number(value) => self.shown(*value),
            PublishedValue::Words(words) => words.clone(),
        }
    }
}

impl PublishedTable {
    /// The table with ours in it; none where nothing of it was run.
    pub(super) fn fill(&self, row: &Row) -> Option<FilledTable> {
        let was_run = |line: &PublishedLine| {
            row.kernels()
                .any(|(_, more)| line.estimates(row, more).any(|(_, it)| it.is_some()))
        };
        self.lines.iter().any(was_run).then(|| FilledTable {
            title: format!("{}: {} ({})", row.name, self.title, self.source),
            table: self.table(row),
            csv: self.csv(row),
        })
    }

    fn table(&self, row: &Row) -> Table {
        let columns = self.columns.iter().map(Column::right);
        let columns = std::iter::once(Column::left("")).chain(columns);
        let mut table = Table::new(&*self.title, columns).noted(self.note(row));
        for line in &self.lines {
            table.section(&*line.label);
            let published: Vec<_> = line.cells.iter().map(PublishedCell::published).collect();
            if published.iter().any(|it| !it.is_empty()) {
                table.row(std::iter::once("published".to_owned()).chain(published));
            }
            for (name, more) in row.kernels() {
                let estimates: Vec<_> = line.estimates(row, more).collect();
                if name != Row::TODAY && estimates.iter().all(|(_, it)| it.is_none()) {
                    continue;
                }
                let ours = estimates.into_iter().map(|(cell, estimate)| {
                    estimate.map_or_else(String::new, |it| cell.shown(it.mean))
                });
                table.row(std::iter::once(name).chain(ours));
            }
        }
        table
    }

    fn csv(&self, row: &Row) -> String {
        let mut text = "line,column,measure,published,kernel,mean,low,high,runs\n".to_owned();
        for line in &self.lines {
            for (name, more) in row.kernels() {
                for ((cell, estimate), column) in line.estimates(row, more).zip(&self.columns) {
                    let published = match &cell.published {
                        PublishedValue::Number(value) => value.to_string(),
                        PublishedValue::Words(words) => words.clone(),
                    };
                    let ours = Estimate::csv(estimate.as_ref());
                    let measure = cell.measure.as_str();
                    let fields = [&line.label, column, measure, &published, &name];
                    let fields = fields.map(csv_field);
                    text += &format!("{},{ours}\n", fields.join(","));
                }
            }
        }
        text
    }

    /// The table's source, what its lines were run with, and how they compare.
    fn note(&self, row: &Row) -> String {
        let cells = self.lines.iter().flat_map(|line| &line.cells);
        let in_proportion = cells.into_iter().any(|cell| cell.factor != 1.0);
        let causes = row.causes.iter();
        let causes = causes.map(|(more, is)| format!(" {}: if {is}.", more));
        format!(
            "{}.{}{}",
            self.source,
            causes.collect::<String>(),
            match in_proportion {
                true => " Our counts are in proportion to the time of the published ones.",
                false => "",
            }
        )
    }
}

impl PublishedLine {
    fn estimates<'a>(
        &'a self,
        row: &'a Row,
        more: &'a Selector,
    ) -> impl Iterator<Item = (&'a PublishedCell, Option<Estimate>)> {
        let cells = self.cells.iter();
        cells.map(move |cell| (cell, cell.estimate(&row.runs, more)))
    }
}
