//! From an experiment's file to what is judged and drawn.

use crate::analysis::reproduction::{
    self as analysis, Claim, Curve, DigestedRun, Kind, PublishedCell, PublishedLine,
    PublishedValue, Row, Sketch, Statement, Subject,
};
use crate::run_key::{RunKey, values};
use crate::settings::experiment::{
    Cell, Drawn, Experiment, FigureKind, Heading, Line, Name, Planned, Published, PublishedTable,
    Reproduction, Selector, Series, cell_measure,
};
use pillion_cli::settings::BadInput;
use pillion_stats::report::Stream;

use super::fairness;

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
    let is_there = |name: &RunKey| runs.iter().any(|run| run.name == *name);
    let missing = names.filter(|name| !is_there(name)).cloned().collect();
    Ok(Row {
        name: name.to_owned(),
        title: experiment.title.clone().unwrap_or_default(),
        source: reproduction.source.clone(),
        finding: reproduction.finding.clone(),
        beyond: reproduction.beyond,
        today: reproduction.today.clone(),
        causes: causes
            .map(|cause| (cause.runs.clone(), cause.is.clone()))
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
    let runs = line.runs.with(&column.runs);
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

fn subject(runs: &Selector, group: &str) -> Subject {
    Subject {
        runs: runs.clone(),
        group: group.to_owned(),
    }
}

fn group(name: Option<&Name>) -> String {
    name.map(ToString::to_string).unwrap_or_default()
}

/// A figure as it is to be drawn, of an experiment's runs.
fn sketch(drawn: &Drawn, runs: &[Planned]) -> Sketch {
    Sketch {
        title: drawn.title.clone(),
        source: drawn.source.clone(),
        kind: match drawn.kind {
            FigureKind::Cdf => Kind::Cdf,
            FigureKind::Ccdf => Kind::Ccdf,
            FigureKind::Dots => Kind::Dots,
            FigureKind::Boxes => Kind::Boxes,
            FigureKind::Series => Kind::Series {
                expected: expected(drawn, runs),
            },
            FigureKind::Values => Kind::Values {
                over: drawn.over.clone().unwrap_or_default(),
                label: drawn.over_label.clone().unwrap_or_default(),
                expected: expected(drawn, runs),
            },
        },
        measure: drawn.measure.clone(),
        label: drawn.label.clone(),
        curves: curves(drawn, runs),
        from: drawn.from.unwrap_or(0.0),
        max: drawn.max,
        log: drawn.log,
    }
}

/// The curves of a figure; of boxes over a parameter, one for each of its values.
fn curves(drawn: &Drawn, runs: &[Planned]) -> Vec<Curve> {
    let over = drawn.over.as_ref();
    let over = over.filter(|_| drawn.kind == FigureKind::Boxes);
    let curve = |series: &Series| Curve {
        label: series.label.clone(),
        subject: subject(&series.runs, &group(series.group.as_ref())),
        measure: series.measure.clone(),
        stream: stream(series, runs),
    };
    let Some(over) = over else {
        return drawn.series.iter().map(curve).collect();
    };
    let names = runs.iter().map(|it| &it.name);
    let at_values = values(names, over).into_iter().flat_map(|value| {
        drawn.series.iter().map(move |series| {
            let mut curve = curve(series);
            curve.subject.runs = curve
                .subject
                .runs
                .with(&Selector::from_iter([value.clone()]));
            curve.label += &format!(", {}", value.as_str().replace('=', " = "));
            curve
        })
    });
    at_values.collect()
}

/// Number of steps between the points of an expected line.
const POINTS: u32 = 60;

/// The expected lines, from the least to the greatest value of the parameter; in a series, over the time of
/// the longest run.
fn expected(drawn: &Drawn, runs: &[Planned]) -> Vec<(String, Vec<(f64, f64)>)> {
    let over = drawn.over.as_deref().unwrap_or_default();
    let places = runs.iter().filter_map(|run| match drawn.kind {
        FigureKind::Series => Some(run.plan.duration.as_secs_f64()),
        _ => run.name.number(over),
    });
    let begin = (drawn.kind == FigureKind::Series).then_some(0.0);
    let places = places.chain(begin);
    let places: Vec<f64> = places.collect();
    let least = places.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = places.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let along = (0..=POINTS).map(|step| {
        let share = f64::from(step) / f64::from(POINTS);
        match drawn.log {
            true => least * (greatest / least).powf(share),
            false => least + (greatest - least) * share,
        }
    });
    let along: Vec<f64> = along.filter(|_| least < greatest).collect();
    let lines = drawn.expected.iter().map(|expected| {
        let points = along.iter().copied();
        let points = points.filter_map(|at| Some((at, drawn.expected_at(expected, at)?)));
        (expected.label.clone(), points.collect())
    });
    lines.collect()
}

/// The kind of streams that a curve shows, by its first run.
fn stream(series: &Series, runs: &[Planned]) -> Option<Stream> {
    let run = runs.iter().find(|run| series.runs.takes(&run.name))?;
    let mut streams = run.plan.streams.iter();
    let streams = match &series.group {
        Some(group) => streams.find(|streams| streams.traffic.name == **group)?,
        None => streams.next()?,
    };
    Some(match (&streams.bundling, streams.traffic.kind.name()) {
        (Some(_), _) => Stream::Bundled,
        (None, "greedy") => Stream::Greedy,
        (None, _) => Stream::Plain,
    })
}

#[cfg(test)]
mod tests {
    use crate::settings::experiment::{self, Extent};

    use super::*;

    const TEXT: &str = "\
duration = 10
[parameter]
n = [8, 2]
[group.thin]
streams = \"= n\"
[axis.as.today]
[axis.as.then]
[reproduction]
[[reproduction.figure]]
title = \"a\"
kind = \"boxes\"
measure = \"acked_goodput_bit_per_s of slices\"
over = \"n\"
series = [{ label = \"now\", runs = \"as=today\" }, { label = \"once\", runs = \"as=then\" }]
";

    #[test]
    fn boxes_over_something_are_those_of_each_curve_at_each_value() {
        let experiment = experiment::of_text("a.toml", TEXT, Extent::Full).unwrap();
        let drawn = &experiment.reproduction.as_ref().unwrap().figure[0];
        let curves = sketch(drawn, &experiment.runs).curves;
        let labels: Vec<_> = curves.iter().map(|it| it.label.as_str()).collect();
        assert_eq!(
            labels,
            ["now, n = 8", "once, n = 8", "now, n = 2", "once, n = 2"]
        );
        assert_eq!(curves[3].subject.runs, "as=then,n=2".into());
    }
}
