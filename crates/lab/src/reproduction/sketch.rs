//! From an experiment's file to what is drawn.

use crate::analysis::reproduction::{Curve, Kind, Sketch};
use crate::settings::experiment::{Drawn, FigureKind, Planned, Series};
use pillion_stats::names::run;
use pillion_stats::report::Stream;

use super::row::{group, subject};

/// A figure as it is to be drawn, of an experiment's runs.
pub(super) fn sketch(drawn: &Drawn, runs: &[Planned]) -> Sketch {
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

/// Those of the file; of boxes over something, each at every value that runs have of it.
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
    let names = runs.iter().map(|it| it.name.as_str());
    let at_values = run::values(names, over).into_iter().flat_map(|value| {
        drawn.series.iter().map(move |series| {
            let mut curve = curve(series);
            curve.subject.runs.push(value.to_owned());
            curve.label += &format!(", {}", value.replace('=', " = "));
            curve
        })
    });
    at_values.collect()
}

/// How many points of a line of what is expected there are, beside those of runs.
const POINTS: u32 = 60;

/// What is expected, from the least to the greatest value of what runs are drawn over; in a
/// series from the beginning to the end of the longest run.
fn expected(drawn: &Drawn, runs: &[Planned]) -> Vec<(String, Vec<(f64, f64)>)> {
    let over = drawn.over.as_deref().unwrap_or_default();
    let places = runs.iter().filter_map(|run| match drawn.kind {
        FigureKind::Series => Some(run.plan.duration.as_secs_f64()),
        _ => run::number(&run.name, over),
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

/// What the streams of a curve are in its first run.
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
        assert_eq!(curves[3].subject.runs, ["as=then", "n=2"]);
    }
}
