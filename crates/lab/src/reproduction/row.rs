//! From an experiment's file to what is judged and drawn.

use crate::analysis::reproduction::{
    self as analysis, Claim, DigestedRun, PublishedCell, PublishedLine, PublishedValue, Row,
    Statement, Subject,
};
use crate::settings::experiment::{
    Cell, Experiment, Heading, Line, Name, Planned, Published, PublishedTable, Reproduction,
    Selector, cell_measure,
};
use pillion_cli::settings::BadInput;

use super::fairness;
use super::sketch::sketch;

/// The experiment of that name with what was run of it.
///
/// # Errors
/// [`BadInput`], if it reproduces nothing.
pub fn row(name: &str, experiment: &Experiment, runs: Vec<DigestedRun>) -> Result<Row, BadInput> {
    let Some(reproduction) = &experiment.reproduction else {
        return Err(BadInput(format!(
            "{name}: it reproduces nothing; its file has no [reproduction]"
        )));
    };
    let claims = reproduction.published.iter();
    let causes = reproduction.causes.iter();
    let names = experiment.runs.iter().map(|planned| &planned.name);
    let is_there = |name: &String| runs.iter().any(|run| run.name == *name);
    let missing = names.filter(|name| !is_there(name)).cloned().collect();
    Ok(Row {
        name: name.to_owned(),
        title: experiment.title.clone().unwrap_or_default(),
        source: reproduction.source.clone(),
        finding: reproduction.finding.clone(),
        beyond: reproduction.beyond,
        today: reproduction.today.parts().to_vec(),
        causes: causes
            .map(|cause| (cause.runs.parts().to_vec(), cause.is.clone()))
            .collect(),
        claims: claims
            .map(|published| claim(published, reproduction))
            .collect(),
        tables: reproduction
            .table
            .iter()
            .map(|table| published_table(table, &experiment.runs))
            .chain(fairness::table(reproduction, &experiment.runs))
            .collect(),
        sketches: reproduction
            .figure
            .iter()
            .map(|drawn| sketch(drawn, &experiment.runs))
            .collect(),
        missing,
        runs,
    })
}

fn claim(published: &Published, of: &Reproduction) -> Claim {
    let group = group(published.group.as_ref());
    let statement = match (published.value, published.at_most, published.at_least) {
        (Some(value), ..) => {
            let within = published.within.map_or(0.0, |within| within.of(value));
            Statement::Value(value, within)
        }
        (_, Some(most), _) => Statement::AtMost(most),
        (.., Some(least)) => Statement::AtLeast(least),
        (None, None, None) => {
            let subjects = published.ascending.iter();
            Statement::Ascending(subjects.map(|runs| subject(runs, &group)).collect())
        }
    };
    let source = published.source.as_ref().unwrap_or(&of.source);
    let over = published.base().map(|(runs, base)| match base {
        Some(own) => subject(&runs, own),
        None => subject(&runs, &group),
    });
    Claim {
        what: published.what.clone(),
        source: source.clone(),
        measure: published.measure.clone(),
        subject: subject(&published.runs, &group),
        over_measure: published.over_measure.clone(),
        minus: published.minus.as_ref().map(|runs| subject(runs, &group)),
        over,
        statement,
    }
}

fn published_table(table: &PublishedTable, runs: &[Planned]) -> analysis::PublishedTable {
    let lines = table.lines.iter().map(|line| {
        let cells = table.columns.iter().enumerate().map(|(place, column)| {
            let says = line.published.get(place);
            cell(table.duration, line, column, says, runs)
        });
        PublishedLine {
            label: line.label.clone(),
            cells: cells.collect(),
        }
    });
    analysis::PublishedTable {
        title: table.title.clone(),
        source: table.source.clone(),
        columns: table.columns.iter().map(|it| it.label.clone()).collect(),
        lines: lines.collect(),
    }
}

fn cell(
    duration_s: Option<f64>,
    line: &Line,
    column: &Heading,
    says: Option<&Cell>,
    planned: &[Planned],
) -> PublishedCell {
    let runs = [line.runs.parts(), column.runs.parts()].concat();
    let is_of = |run: &&Planned| line.runs.takes(&run.name) && column.runs.takes(&run.name);
    let counts = line.counts || column.counts;
    let run = planned.iter().find(is_of).filter(|_| counts);
    let factor = duration_s
        .zip(run)
        .map(|(published_s, run)| published_s / run.plan.duration.as_secs_f64());
    PublishedCell {
        measure: cell_measure(line, column).expect("checked when the file was read"),
        subject: Subject {
            runs,
            group: group(line.group.as_ref().or(column.group.as_ref())),
        },
        factor: factor.unwrap_or(1.0),
        published: match says {
            Some(Cell::Number(number)) => PublishedValue::Number(*number),
            Some(Cell::Words(words)) => PublishedValue::Words(words.clone()),
            None => PublishedValue::Words(String::new()),
        },
    }
}

pub(super) fn subject(runs: &Selector, group: &str) -> Subject {
    Subject {
        runs: runs.parts().to_vec(),
        group: group.to_owned(),
    }
}

pub(super) fn group(name: Option<&Name>) -> String {
    name.map(ToString::to_string).unwrap_or_default()
}
