//! From an experiment's file to what is judged and drawn.

use pillion_cli::settings::BadInput;
use pillion_stats::report::Stream;

use super::fairness;
use crate::analysis::reproduction::{DigestedRun, Row};
use crate::run_key::{RunKey, values};
use crate::settings::experiment::{Curve, Experiment, FigureKind, Planned, Selector, Sketch};

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
    let names = experiment.runs.iter().map(|planned| &planned.name);
    let is_there = |name: &RunKey| runs.iter().any(|run| run.name == *name);
    let missing = names.filter(|name| !is_there(name)).cloned().collect();
    let mut published = reproduction.clone();
    for claim in &mut published.published {
        if claim.source.is_empty() {
            claim.source.clone_from(&published.source);
        }
    }
    published
        .table
        .extend(fairness::table(reproduction, &experiment.runs));
    for figure in &mut published.figure {
        resolve(figure, &experiment.runs);
    }
    Ok(Row {
        name: name.to_owned(),
        title: experiment.title.clone().unwrap_or_default(),
        published,
        missing,
        runs,
    })
}

/// Adds to a figure what follows from the experiment's runs: the kind of each curve's streams, the points
/// of expected lines, and of boxes over a parameter, a curve for each of its values.
fn resolve(sketch: &mut Sketch, runs: &[Planned]) {
    let along = along(sketch, runs);
    for place in 0..sketch.expected.len() {
        let points = along.iter();
        let expected = &sketch.expected[place];
        let points = points.filter_map(|at| Some((*at, sketch.expected_at(expected, *at)?)));
        sketch.expected[place].points = points.collect();
    }
    for curve in &mut sketch.series {
        curve.stream = stream(curve, runs);
    }
    let over = sketch.over.as_ref();
    let Some(over) = over.filter(|_| sketch.kind == FigureKind::Boxes) else {
        return;
    };
    let names = runs.iter().map(|it| &it.name);
    let at_values = values(names, over).into_iter().flat_map(|value| {
        sketch.series.iter().map(move |curve| Curve {
            label: format!("{}, {}", curve.label, value.as_str().replace('=', " = ")),
            runs: curve.runs.with(&Selector::from_iter([value.clone()])),
            ..curve.clone()
        })
    });
    sketch.series = at_values.collect();
}

/// Number of steps between the points of an expected line.
const POINTS: u32 = 60;

/// Where expected lines have points: from the least to the greatest value of the parameter; in a series,
/// over the time of the longest run.
fn along(sketch: &Sketch, runs: &[Planned]) -> Vec<f64> {
    let over = sketch.over.as_deref().unwrap_or_default();
    let places = runs.iter().filter_map(|run| match sketch.kind {
        FigureKind::Series => Some(run.plan.duration.as_secs_f64()),
        _ => run.name.number(over),
    });
    let begin = (sketch.kind == FigureKind::Series).then_some(0.0);
    let places = places.chain(begin);
    let places: Vec<f64> = places.collect();
    let least = places.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = places.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let along = (0..=POINTS).map(|step| {
        let share = f64::from(step) / f64::from(POINTS);
        match sketch.log {
            true => least * (greatest / least).powf(share),
            false => least + (greatest - least) * share,
        }
    });
    along.filter(|_| least < greatest).collect()
}

/// The kind of streams that a curve shows, by its first run.
fn stream(curve: &Curve, runs: &[Planned]) -> Option<Stream> {
    let run = runs.iter().find(|run| curve.runs.takes(&run.name))?;
    let mut streams = run.plan.streams.iter();
    let streams = match curve.group.as_str() {
        "" => streams.next()?,
        group => streams.find(|streams| streams.traffic.name == group)?,
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
        let mut sketch = experiment.reproduction.as_ref().unwrap().figure[0].clone();
        resolve(&mut sketch, &experiment.runs);
        let curves = sketch.series;
        let labels: Vec<_> = curves.iter().map(|it| it.label.as_str()).collect();
        assert_eq!(
            labels,
            ["now, n = 8", "once, n = 8", "now, n = 2", "once, n = 2"]
        );
        assert_eq!(curves[3].runs, "as=then,n=2".into());
    }
}
