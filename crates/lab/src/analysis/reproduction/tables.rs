//! Published tables and numbers next to the measured ones: for the report, and as files for papers.

use pillion_stats::measure::Unit;
use pillion_stats::report::{Column, Figure, Table, csv_field, number};

use super::{Estimate, ExperimentResult, JudgedClaim, MeasuredRun};
use crate::measure_ref::MeasureRef;
use crate::run_key::Selector;
use crate::settings::experiment::{Cell, Claim, Line, PublishedCell, PublishedTable, Statement};

/// A published table with the measured values.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedTable {
    /// The table's title and source.
    pub title: String,
    /// Measured rows below each published one: with the current kernel and with each cause.
    pub table: Table,
    /// One line per cell: the published value, and the measured one with the ends of its interval.
    pub csv: String,
}

impl ExperimentResult {
    /// Returns the experiment's tables for which runs exist, in the published columns.
    pub fn tables(&self) -> impl Iterator<Item = ComparedTable> {
        self.reproduction
            .table
            .iter()
            .filter_map(|table| table.fill(self))
    }
}

impl PublishedCell<'_> {
    fn estimate(&self, runs: &[MeasuredRun], extra: &Selector) -> Option<Estimate> {
        let measure = self.measure.as_ref().ok()?;
        let runs = runs.iter().filter(|run| run.belongs_to(&self.runs, extra));
        let values =
            runs.filter_map(|run| Some(run.value(self.group, measure)? * self.factor(run)));
        Estimate::from_values(&values.collect::<Vec<_>>())
    }

    /// Returns the factor for measured counts: the duration of the published runs divided by that
    /// of this run.
    fn factor(&self, run: &MeasuredRun) -> f64 {
        self.duration_s
            .map_or(1.0, |published_s| published_s / run.duration_s)
    }

    fn format_value(&self, value: f64) -> String {
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
            Some(Cell::Number(value)) => self.format_value(*value),
            Some(Cell::Words(words)) => words.clone(),
            None => String::new(),
        }
    }
}

impl PublishedTable {
    /// Returns the table with measured values; `None` without runs.
    pub(super) fn fill(&self, result: &ExperimentResult) -> Option<ComparedTable> {
        let was_run = |line: &Line| {
            result.kernels().any(|(_, extra)| {
                self.estimates(line, result, extra)
                    .any(|(_, it)| it.is_some())
            })
        };
        self.lines.iter().any(was_run).then(|| ComparedTable {
            title: format!("{}: {} ({})", result.name, self.title, self.source),
            table: self.table(result),
            csv: self.csv(result),
        })
    }

    fn table(&self, result: &ExperimentResult) -> Table {
        let columns = self.columns.iter().map(|it| Column::right(&*it.label));
        let columns = std::iter::once(Column::left("")).chain(columns);
        let mut table = Table::new(&*self.title, columns).with_note(self.note(result));
        for line in &self.lines {
            table.section(&*line.label);
            let published: Vec<_> = self.cells(line).map(|cell| cell.published()).collect();
            if published.iter().any(|it| !it.is_empty()) {
                table.row(std::iter::once("published".to_owned()).chain(published));
            }
            for (name, extra) in result.kernels() {
                let estimates: Vec<_> = self.estimates(line, result, extra).collect();
                if name != ExperimentResult::CURRENT_KERNEL
                    && estimates.iter().all(|(_, it)| it.is_none())
                {
                    continue;
                }
                let ours = estimates.into_iter().map(|(cell, estimate)| {
                    estimate.map_or_else(String::new, |it| cell.format_value(it.mean))
                });
                table.row(std::iter::once(name).chain(ours));
            }
        }
        table
    }

    fn csv(&self, result: &ExperimentResult) -> String {
        let mut text = "line,column,measure,published,kernel,mean,low,high,runs\n".to_owned();
        for line in &self.lines {
            for (name, extra) in result.kernels() {
                for ((cell, estimate), column) in
                    self.estimates(line, result, extra).zip(&self.columns)
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

    /// Returns the table's source, its causes, and how counts are scaled.
    fn note(&self, result: &ExperimentResult) -> String {
        let mut cells = self.lines.iter().flat_map(|line| self.cells(line));
        let in_proportion = cells.any(|cell| {
            let mut runs = result
                .runs
                .iter()
                .filter(|run| cell.runs.matches(&run.name));
            runs.any(|run| cell.factor(run) != 1.0)
        });
        let causes = result.reproduction.causes.iter();
        let causes = causes.map(|cause| format!(" {}: if {}.", cause.runs, cause.description));
        format!(
            "{}.{}{}",
            self.source,
            causes.collect::<String>(),
            match in_proportion {
                true => " Measured counts are scaled to the duration of the published runs.",
                false => "",
            }
        )
    }

    fn estimates<'a>(
        &'a self,
        line: &'a Line,
        result: &'a ExperimentResult,
        extra: &'a Selector,
    ) -> impl Iterator<Item = (PublishedCell<'a>, Option<Estimate>)> {
        let cells = self.cells(line);
        cells.map(move |cell| {
            let estimate = cell.estimate(&result.runs, extra);
            (cell, estimate)
        })
    }
}

const CSV_HEADING: &str = "experiment,kind,description,source,quote,measure,statement,number,tolerance,\
                           verdict,holds_in_other_case,kernel,selected_runs,mean,low,high,runs,holds\n";

/// Returns a CSV file with one line per claim and kernel or cause; an order has one line per
/// subject. Each line ends with the measured value and the ends of its interval.
pub(super) fn claims_csv(results: &[ExperimentResult]) -> String {
    let mut text = CSV_HEADING.to_owned();
    for result in results {
        for (claim, judged) in result.judged() {
            let ours = result.kernels().zip(judged.by_kernel());
            for ((kernel, _), (of, holds)) in ours {
                let holds = yes_or_no(holds);
                for (index, runs) in claim.subjects().iter().enumerate() {
                    let named = runs.to_string();
                    let ours = of.get(index);
                    text += &claim_line(result, claim, &judged, [&kernel, &named, holds], ours);
                }
            }
        }
    }
    text
}

fn claim_line(
    result: &ExperimentResult,
    claim: &Claim,
    judged: &JudgedClaim,
    [kernel, named, holds]: [&str; 3],
    ours: Option<&Estimate>,
) -> String {
    let (statement, number, within) = match claim.statement() {
        Statement::Value(value, within) => ("value", value.to_string(), within.to_string()),
        Statement::AtMost(bound) => ("at-most", bound.to_string(), String::new()),
        Statement::AtLeast(bound) => ("at-least", bound.to_string(), String::new()),
        Statement::Ascending => ("ascending", String::new(), String::new()),
    };
    let fields = [
        &result.name,
        judged.kind.as_str(),
        &claim.description,
        &claim.source,
        &claim.quote,
        claim.measure.as_str(),
        statement,
        &number,
        &within,
        judged.verdict.word(),
        yes_or_no(judged.holds_in_other_case),
        kernel,
        named,
    ];
    let fields = fields.map(csv_field).join(",");
    let ours = Estimate::csv(ours);
    format!("{fields},{ours},{holds}\n")
}

fn yes_or_no(answer: Option<bool>) -> &'static str {
    match answer {
        Some(true) => "yes",
        Some(false) => "no",
        None => "",
    }
}

/// Returns names and contents of the files for papers. Each figure is an SVG and a CSV file, each
/// table a CSV file, named by experiment and number. `claims.csv` has every claim with its measured
/// values.
pub fn files(results: &[ExperimentResult]) -> impl Iterator<Item = (String, String)> {
    let numbers = ("claims.csv".to_owned(), claims_csv(results));
    std::iter::once(numbers).chain(results.iter().flat_map(result_files))
}

fn result_files(result: &ExperimentResult) -> impl Iterator<Item = (String, String)> {
    // The kind is at the end, because an experiment's name may end with anything else.
    let name = |number: usize, end: &str| format!("{}-{number}{end}", result.name);
    let figures = (1..)
        .zip(result.figures())
        .flat_map(move |(number, it): (_, Figure)| {
            [(".svg", it.to_svg()), (".csv", it.to_csv())]
                .map(|(end, text)| (name(number, end), text))
        });
    let tables = (1..).zip(result.tables());
    let tables = tables.map(move |(number, it)| (name(number, "-table.csv"), it.csv));
    figures.chain(tables)
}
