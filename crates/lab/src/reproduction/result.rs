//! Combines an experiment's file with its runs, for verdicts and figures.

use pillion_cli::settings::BadInput;
use pillion_stats::report::StreamKind;

use super::fairness;
use crate::analysis::reproduction::{ExperimentResult, MeasuredRun};
use crate::run_key::{RunKey, values};
use crate::settings::experiment::{
    Cause, Curve, Experiment, FigureKind, PlannedRun, Selector, Sketch,
};

/// Returns an experiment with these runs.
///
/// # Errors
///
/// [`BadInput`] if its file has no `[reproduction]`.
pub fn assemble(
    name: &str,
    experiment: &Experiment,
    runs: Vec<MeasuredRun>,
) -> Result<ExperimentResult, BadInput> {
    let Some(reproduction) = &experiment.reproduction else {
        return Err(BadInput(format!("{name}: the file has no [reproduction]")));
    };
    let names = experiment.runs.iter().map(|planned| &planned.name);
    let exists = |name: &RunKey| runs.iter().any(|run| run.name == *name);
    let missing = names.filter(|name| !exists(name)).cloned().collect();
    let mut filled = reproduction.clone();
    for claim in &mut filled.claims {
        if claim.source.is_empty() {
            claim.source.clone_from(&filled.source);
        }
        claim.kind.get_or_insert(filled.kind);
    }
    // A cause that is made at another scale only is no missing run.
    let is_planned = |cause: &Cause| {
        experiment
            .runs
            .iter()
            .any(|planned| cause.runs.matches(&planned.name))
    };
    filled.causes.retain(is_planned);
    filled
        .table
        .extend(fairness::table(reproduction, &experiment.runs));
    for figure in &mut filled.figure {
        resolve(figure, &experiment.runs);
    }
    Ok(ExperimentResult {
        name: name.to_owned(),
        title: experiment.title.clone().unwrap_or_default(),
        reproduction: filled,
        missing,
        runs,
    })
}

/// Adds to a figure what its file does not have: the kind of each curve's streams, the points of
/// expected lines, and for boxes over a parameter a curve per value.
fn resolve(sketch: &mut Sketch, runs: &[PlannedRun]) {
    let points_along = points_along(sketch, runs);
    for index in 0..sketch.expected.len() {
        let points = points_along.iter();
        let expected = &sketch.expected[index];
        let points = points.filter_map(|at| Some((*at, sketch.expected_at(expected, *at)?)));
        sketch.expected[index].points = points.collect();
    }
    for curve in &mut sketch.series {
        curve.stream = stream_kind(curve, runs);
    }
    let x = sketch.x.as_ref();
    let Some(x) = x.filter(|_| sketch.kind == FigureKind::Boxes) else {
        return;
    };
    let names = runs.iter().map(|it| &it.name);
    let curves_at_values = values(names, x).into_iter().flat_map(|value| {
        sketch.series.iter().map(move |curve| Curve {
            label: format!("{}, {}", curve.label, value.as_str().replace('=', " = ")),
            runs: curve.runs.with(&Selector::from_iter([value.clone()])),
            ..curve.clone()
        })
    });
    sketch.series = curves_at_values.collect();
}

/// Number of steps between the points of an expected line.
const POINTS: u32 = 60;

/// Returns the points of expected lines: from the minimum to the maximum of the parameter, or for a
/// series over the time of the longest run.
fn points_along(sketch: &Sketch, runs: &[PlannedRun]) -> Vec<f64> {
    let x = sketch.x.as_deref().unwrap_or_default();
    let indices = runs.iter().filter_map(|run| match sketch.kind {
        FigureKind::Series => Some(run.plan.duration.as_secs_f64()),
        _ => run.name.number(x),
    });
    let origin = (sketch.kind == FigureKind::Series).then_some(0.0);
    let indices = indices.chain(origin);
    let indices: Vec<f64> = indices.collect();
    let min = indices.iter().copied().fold(f64::INFINITY, f64::min);
    let max = indices.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let points_along = (0..=POINTS).map(|step| {
        let share = f64::from(step) / f64::from(POINTS);
        match sketch.log {
            true => min * (max / min).powf(share),
            false => min + (max - min) * share,
        }
    });
    points_along.filter(|_| min < max).collect()
}

/// Returns the kind of streams of a curve, by its first run.
fn stream_kind(curve: &Curve, runs: &[PlannedRun]) -> Option<StreamKind> {
    let run = runs.iter().find(|run| curve.runs.matches(&run.name))?;
    let mut streams = run.plan.streams.iter();
    let streams = match curve.group.as_str() {
        "" => streams.next()?,
        group => streams.find(|streams| streams.traffic.name == group)?,
    };
    Some(match (&streams.bundling, streams.traffic.kind.name()) {
        (Some(_), _) => StreamKind::Bundled,
        (None, "greedy") => StreamKind::Greedy,
        (None, _) => StreamKind::Plain,
    })
}

#[cfg(test)]
mod tests {
    use crate::settings::experiment::{self, RunScale};

    use super::*;

    const TEXT: &str = "\
duration = 10
[parameter]
n = [8, 2]
[group.thin]
streams = \"= n\"
[axis.as.current]
[axis.as.old]
[reproduction]
[[reproduction.figure]]
title = \"a\"
kind = \"boxes\"
measure = \"acked_goodput_bit_per_s of slices\"
x = \"n\"
series = [{ label = \"now\", runs = \"as=current\" }, { label = \"once\", runs = \"as=old\" }]
";

    #[test]
    fn causes_of_another_scale_are_dropped() {
        let text = TEXT.replace(
            "[reproduction]\n",
            "[reproduction]\nbaseline = \"as=current\"\ncauses = [{ runs = \"as=old\", description = \"old\" }]\n\
             selection.quick.only = [\"as=current\"]\n",
        );
        for (scale, causes) in [(RunScale::Quick, 0), (RunScale::Full, 1)] {
            let experiment = experiment::of_text("a.toml", &text, scale).unwrap();
            let result = assemble("a", &experiment, Vec::new()).unwrap();
            assert_eq!(result.reproduction.causes.len(), causes, "{scale:?}");
        }
    }

    #[test]
    fn boxes_have_a_curve_per_parameter_value() {
        let experiment = experiment::of_text("a.toml", TEXT, RunScale::Full).unwrap();
        let mut sketch = experiment.reproduction.as_ref().unwrap().figure[0].clone();
        resolve(&mut sketch, &experiment.runs);
        let curves = sketch.series;
        let labels: Vec<_> = curves.iter().map(|it| it.label.as_str()).collect();
        assert_eq!(
            labels,
            ["now, n = 8", "once, n = 8", "now, n = 2", "once, n = 2"]
        );
        assert_eq!(curves[3].runs, "as=old,n=2".into());
    }
}
