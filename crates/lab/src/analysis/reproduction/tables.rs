//! Published tables and numbers with ours beside each: for people, and as files for papers.

use pillion_stats::measure::Unit;
use pillion_stats::report::{Column, Figure, Table, csv_field, number};

use super::{DigestedRun, Estimate, Judged, Row};
use crate::measure_ref::MeasureRef;
use crate::run_key::Selector;
use crate::settings::experiment::{Cell, Claim, Line, PublishedCell, PublishedTable, Statement};

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

impl PublishedCell<'_> {
    fn estimate(&self, runs: &[DigestedRun], more: &Selector) -> Option<Estimate> {
        let measure = self.measure.as_ref().ok()?;
        let runs = runs.iter().filter(|run| run.is_of(&self.runs, more));
        let values =
            runs.filter_map(|run| Some(run.value(self.group, measure)? * self.factor(run)));
        Estimate::of(&values.collect::<Vec<_>>())
    }

    /// What ours is multiplied by: of counts, the time that the published ones are of over that of
    /// the run.
    fn factor(&self, run: &DigestedRun) -> f64 {
        self.duration_s
            .map_or(1.0, |published_s| published_s / run.duration_s)
    }

    fn shown(&self, value: f64) -> String {
        let Ok(measure) = &self.measure else {
            return String::new();
        };
        match measure.unit() {
            Unit::Share => format!("{}\u{a0}%", number::millis(value * 100.0)),
            Unit::Milliseconds => number::millis(value),
            Unit::Bytes if value < 1e5 => format!("{}\u{a0}B", number::amount(value.round())),
            Unit::Bytes => number::bytes(value),
            Unit::BitPerSecond => number::rate(value),
            Unit::Number if measure.is_index() => format!("{value:.3}"),
            Unit::Number => number::amount(value),
        }
    }

    fn published(&self) -> String {
        match self.published {
            Some(Cell::Number(value)) => self.shown(*value),
            Some(Cell::Words(words)) => words.clone(),
            None => String::new(),
        }
    }
}

impl PublishedTable {
    /// The table with ours in it; none where nothing of it was run.
    pub(super) fn fill(&self, row: &Row) -> Option<FilledTable> {
        let was_run = |line: &Line| {
            row.kernels()
                .any(|(_, more)| self.estimates(line, row, more).any(|(_, it)| it.is_some()))
        };
        self.lines.iter().any(was_run).then(|| FilledTable {
            title: format!("{}: {} ({})", row.name, self.title, self.source),
            table: self.table(row),
            csv: self.csv(row),
        })
    }

    fn table(&self, row: &Row) -> Table {
        let columns = self.columns.iter().map(|it| Column::right(&*it.label));
        let columns = std::iter::once(Column::left("")).chain(columns);
        let mut table = Table::new(&*self.title, columns).noted(self.note(row));
        for line in &self.lines {
            table.section(&*line.label);
            let published: Vec<_> = self.cells(line).map(|cell| cell.published()).collect();
            if published.iter().any(|it| !it.is_empty()) {
                table.row(std::iter::once("published".to_owned()).chain(published));
            }
            for (name, more) in row.kernels() {
                let estimates: Vec<_> = self.estimates(line, row, more).collect();
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
                for ((cell, estimate), column) in self.estimates(line, row, more).zip(&self.columns)
                {
                    let published = match cell.published {
                        Some(Cell::Number(value)) => value.to_string(),
                        Some(Cell::Words(words)) => words.clone(),
                        None => String::new(),
                    };
                    let ours = Estimate::csv(estimate.as_ref());
                    let measure = cell.measure.as_ref().map_or("", MeasureRef::as_str);
                    let fields = [&line.label, &column.label, measure, &published, &name];
                    let fields = fields.map(csv_field);
                    text += &format!("{},{ours}\n", fields.join(","));
                }
            }
        }
        text
    }

    /// The table's source, what its lines were run with, and how they compare.
    fn note(&self, row: &Row) -> String {
        let mut cells = self.lines.iter().flat_map(|line| self.cells(line));
        let in_proportion = cells.any(|cell| {
            let mut runs = row.runs.iter().filter(|run| cell.runs.takes(&run.name));
            runs.any(|run| cell.factor(run) != 1.0)
        });
        let causes = row.published.causes.iter();
        let causes = causes.map(|cause| format!(" {}: if {}.", cause.runs, cause.is));
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

    fn estimates<'a>(
        &'a self,
        line: &'a Line,
        row: &'a Row,
        more: &'a Selector,
    ) -> impl Iterator<Item = (PublishedCell<'a>, Option<Estimate>)> {
        let cells = self.cells(line);
        cells.map(move |cell| {
            let estimate = cell.estimate(&row.runs, more);
            (cell, estimate)
        })
    }
}

const HEADING: &str = "experiment,what,source,measure,says,number,within,verdict,kernel,runs_named,\
                       mean,low,high,runs,holds\n";

/// Each published number: what is said of it, and ours today and with each cause, a line for each
/// (of an order, for each that is in it), with the ends of its interval.
pub(super) fn published_csv(rows: &[Row]) -> String {
    let mut text = HEADING.to_owned();
    for row in rows {
        for (claim, judged) in row.judged() {
            let ours = row.kernels().zip(judged.by_kernel());
            for ((kernel, _), (of, holds)) in ours {
                let holds = match holds {
                    Some(true) => "yes",
                    Some(false) => "no",
                    None => "",
                };
                for (place, runs) in claim.subjects().iter().enumerate() {
                    let named = runs.to_string();
                    let ours = of.get(place);
                    text += &number_line(row, claim, &judged, [&kernel, &named, holds], ours);
                }
            }
        }
    }
    text
}

fn number_line(
    row: &Row,
    claim: &Claim,
    judged: &Judged,
    [kernel, named, holds]: [&str; 3],
    ours: Option<&Estimate>,
) -> String {
    let (says, number, within) = match claim.statement() {
        Statement::Value(value, within) => ("value", value.to_string(), within.to_string()),
        Statement::AtMost(most) => ("at-most", most.to_string(), String::new()),
        Statement::AtLeast(least) => ("at-least", least.to_string(), String::new()),
        Statement::Ascending => ("ascending", String::new(), String::new()),
    };
    let fields = [
        &row.name,
        &claim.what,
        &claim.source,
        claim.measure.as_str(),
        says,
        &number,
        &within,
        judged.verdict.word(),
        kernel,
        named,
    ];
    let fields = fields.map(csv_field).join(",");
    let ours = Estimate::csv(ours);
    format!("{fields},{ours},{holds}\n")
}

/// Names and texts of the files for papers: each figure as SVG and as CSV, and each table as CSV, by
/// the experiment's name and a number; and `published.csv`, with every published number beside ours.
pub fn files(rows: &[Row]) -> impl Iterator<Item = (String, String)> {
    let numbers = ("published.csv".to_owned(), published_csv(rows));
    std::iter::once(numbers).chain(rows.iter().flat_map(of_row))
}

fn of_row(row: &Row) -> impl Iterator<Item = (String, String)> {
    // The kind at the end: an experiment's name may end with anything else.
    let name = |number: usize, end: &str| format!("{}-{number}{end}", row.name);
    let figures = (1..)
        .zip(row.figures())
        .flat_map(move |(number, it): (_, Figure)| {
            [(".svg", it.to_svg()), (".csv", it.to_csv())]
                .map(|(end, text)| (name(number, end), text))
        });
    let tables = (1..).zip(row.tables());
    let tables = tables.map(move |(number, it)| (name(number, "-table.csv"), it.csv));
    figures.chain(tables)
}
