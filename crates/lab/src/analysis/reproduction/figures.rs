//! Figures of published experiments: distributions with a band over seeds, and values over a
//! parameter with their intervals.

use pillion_stats::measure::Unit;
use pillion_stats::report::{Axis, Figure, Line, STYLES, Stream};

use super::{DigestedRun, Estimate, Subject};
use crate::measure_ref::{MeasureRef, levels};
use crate::run_key::Selector;

/// A figure to be drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Sketch {
    /// What it shows.
    pub title: String,
    /// The published figure.
    pub source: String,
    /// How it is drawn.
    pub kind: Kind,
    /// The measure: of values, with what is asked of a distribution.
    pub measure: MeasureRef,
    /// What the measure is called.
    pub label: String,
    /// The figure's curves.
    pub curves: Vec<Curve>,
    /// Of a CDF: the share at which the vertical axis begins.
    pub from: f64,
    /// The horizontal axis ends there.
    pub max: Option<f64>,
    /// The horizontal axis is logarithmic.
    pub log: bool,
}

/// How a figure is drawn.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// The share of values that do not exceed each one.
    Cdf,
    /// The share of values that exceed each one, on a logarithmic axis.
    Ccdf,
    /// A dot for each stream, of all seeds.
    Dots,
    /// The 5th, 25th, 50th, 75th and 95th percentile of each curve.
    Boxes,
    /// A rate over time, in slices, of each curve's first run.
    Series {
        /// Lines of what is to be expected: what each is called, and its points.
        expected: Vec<(String, Vec<(f64, f64)>)>,
    },
    /// A value for each parameter.
    Values {
        /// The parameter's name as runs have it in theirs, as in `n`.
        over: String,
        /// What the parameter is called.
        label: String,
        /// Lines of what is to be expected: what each is called, and its points.
        expected: Vec<(String, Vec<(f64, f64)>)>,
    },
}

/// A curve of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// What it is called.
    pub label: String,
    /// What it shows.
    pub subject: Subject,
    /// The measure, if not the figure's.
    pub measure: Option<MeasureRef>,
    /// What the streams are, if that is known.
    pub stream: Option<Stream>,
}

/// The styles that no kind of streams has.
const OTHER_STYLES: [usize; 3] = [3, 4, 5];

impl Sketch {
    /// The figure as it was published, and how else it is worth a look.
    pub(super) fn views(&self) -> impl Iterator<Item = (&'static str, Self)> {
        let tail = (self.kind == Kind::Cdf).then(|| {
            let tail = Self {
                kind: Kind::Ccdf,
                max: None,
                ..self.clone()
            };
            ("tail", tail)
        });
        std::iter::once(("as published", self.clone())).chain(tail)
    }

    /// The figure, of runs that have `more` in their names besides; none where nothing was run.
    #[must_use]
    pub fn draw(&self, runs: &[DigestedRun], more: &Selector, kernel: &str) -> Option<Figure> {
        let curves = self.curves.iter().zip(self.styles());
        let made: Vec<_> = curves
            .filter_map(|(curve, style)| {
                let of = runs.iter().filter(|run| curve.subject.is_of(run, more));
                let of: Vec<_> = of.collect();
                (!of.is_empty()).then_some((curve, style, of))
            })
            .collect();
        let mut lines: Vec<Line> = made
            .iter()
            .rev()
            .enumerate()
            .rev()
            .flat_map(|(height, (curve, style, of))| {
                let (style, height) = (*style, height as f64);
                match &self.kind {
                    Kind::Values { over, .. } => self.values(curve, of, over, style),
                    Kind::Cdf | Kind::Ccdf => self.distribution(curve, of, style),
                    Kind::Boxes => self.boxed(curve, of, height),
                    Kind::Dots => self.dots(curve, of, height),
                    Kind::Series { .. } => self.series(curve, of, style),
                }
            })
            .collect();
        if lines.is_empty() {
            return None;
        }
        lines.extend(self.expected());
        let scale = |label: &str, unit: &str| match self.log {
            true => Axis::log(label, unit),
            false => Axis::linear(label, unit),
        };
        let symbol = match self.measure.unit() {
            Unit::Share => "%",
            Unit::BitPerSecond => "Mbit/s",
            other => other.symbol(),
        };
        let (x, y) = match &self.kind {
            Kind::Cdf => {
                let x = scale(&self.label, symbol);
                let y = Axis::linear("share of values that are no larger", "");
                (
                    x,
                    Axis {
                        min: Some(self.from),
                        max: Some(1.0),
                        ..y
                    },
                )
            }
            Kind::Ccdf => {
                let x = scale(&self.label, symbol);
                let y = Axis::log("share of values that are larger", "");
                (
                    x,
                    Axis {
                        min: Some(1e-4),
                        max: Some(1.0),
                        ..y
                    },
                )
            }
            Kind::Boxes | Kind::Dots => {
                let names = made.iter().rev().map(|(curve, ..)| curve.label.clone());
                let x = scale(&self.label, symbol);
                let min = (!self.log).then_some(0.0);
                (Axis { min, ..x }, Axis::names("", names.collect()))
            }
            Kind::Series { .. } => {
                let y = Axis::linear(&*self.label, symbol);
                let min = Some(0.0);
                (scale("time", "s"), Axis { min, ..y })
            }
            Kind::Values { label, .. } => {
                let y = Axis::linear(&*self.label, symbol);
                (
                    scale(label, ""),
                    Axis {
                        min: Some(0.0),
                        ..y
                    },
                )
            }
        };
        let seeds = match &self.kind {
            Kind::Boxes => {
                "boxes from the 25th to the 75th percentile, divided at the median; lines from \
                 the 5th and to the 95th; means over seeds"
            }
            Kind::Series { .. } => "slices of a second, of the first seed",
            Kind::Dots => "a dot for each stream of each seed, those of one kind above each other",
            Kind::Values { .. } | Kind::Cdf | Kind::Ccdf => {
                "thin lines: intervals of 95 % over seeds"
            }
        };
        Some(Figure {
            title: format!("{}, {kernel}", self.title),
            caption: format!("{}; {seeds}.", self.source),
            x: Axis { max: self.max, ..x },
            y,
            side: None,
            lines,
        })
    }

    /// The styles of the curves: the first of each kind of streams has that of its kind, others those
    /// of no kind while there are any, and then the colour of their kind with another dash, so that none
    /// is taken for another kind.
    fn styles(&self) -> Vec<Option<usize>> {
        let mut styles = vec![None; self.curves.len()];
        for (place, curve) in self.curves.iter().enumerate() {
            let style = curve.stream.map(Stream::style);
            styles[place] = style.filter(|style| !styles.contains(&Some(*style)));
        }
        for free in OTHER_STYLES {
            let next = styles.iter().position(Option::is_none);
            if let Some(next) = next {
                styles[next] = Some(free);
            }
        }
        let of_no_kind = OTHER_STYLES.into_iter().cycle();
        for ((style, curve), other) in styles.iter_mut().zip(&self.curves).zip(of_no_kind) {
            let again = STYLES + curve.stream.map_or(other, Stream::style);
            style.get_or_insert(again);
        }
        styles
    }

    fn distribution(
        &self,
        curve: &Curve,
        runs: &[&DigestedRun],
        style: Option<usize>,
    ) -> Vec<Line> {
        let quantiles = runs
            .iter()
            .filter_map(|run| curve.subject.group(run)?.quantiles(self.measure(curve)));
        let quantiles: Vec<_> = quantiles.collect();
        if quantiles.is_empty() {
            return Vec::new();
        }
        let share = |level: f64| match self.kind {
            Kind::Ccdf => 1.0 - level,
            _ => level,
        };
        let points = levels().enumerate().filter_map(|(place, level)| {
            let at = quantiles.iter().filter_map(|it| it.get(place).copied());
            let share = share(level);
            Some((Estimate::of(&at.collect::<Vec<_>>())?, share)).filter(|_| share > 0.0)
        });
        let points: Vec<(Estimate, f64)> = points.collect();
        // Nothing that is drawn by quantiles can be below 0.
        let at = |of: fn(&Estimate) -> f64| -> Vec<(f64, f64)> {
            let at = |(estimate, share): &(_, _)| (of(estimate).max(0.0) * self.scale(), *share);
            points.iter().map(at).collect()
        };
        let mut lines = vec![Line::straight(&*curve.label, at(|it| it.mean)).styled(style)];
        if quantiles.len() > 1 {
            let ends: [fn(&Estimate) -> f64; 2] = [Estimate::low, Estimate::high];
            lines.extend(ends.map(|end| Line::straight("", at(end)).reference()));
        }
        lines
    }

    fn boxed(&self, curve: &Curve, runs: &[&DigestedRun], y: f64) -> Vec<Line> {
        let percentile = |percentile: u32| {
            let share = f64::from(percentile) / 100.0;
            let measure = self.measure(curve);
            let values = runs
                .iter()
                .filter_map(|run| curve.subject.group(run)?.quantile(measure, share));
            let values: Vec<_> = values.collect();
            Some(Estimate::of(&values)?.mean * self.scale())
        };
        let [a, b, c, d, e] = [5, 25, 50, 75, 95].map(percentile);
        let values = a.zip(b).zip(c).zip(d).zip(e);
        let boxed =
            values.map(|((((a, b), c), d), e)| Line::box_of(&*curve.label, [a, b, c, d, e], y));
        let style = curve.stream.map(Stream::style);
        boxed.into_iter().map(|line| line.styled(style)).collect()
    }

    /// Of each stream, what the measure is without the words that ask for all of them.
    fn dots(&self, curve: &Curve, runs: &[&DigestedRun], y: f64) -> Vec<Line> {
        let values = runs.iter().filter_map(|run| {
            let group = curve.subject.group(run)?;
            Some(
                group
                    .of_streams(self.measure(curve))?
                    .iter()
                    .map(|it| it * self.scale()),
            )
        });
        let values: Vec<f64> = values.flatten().collect();
        let dots = (!values.is_empty()).then(|| Line::dots(&*curve.label, &values, y));
        let style = curve.stream.map(Stream::style);
        dots.into_iter().map(|line| line.styled(style)).collect()
    }

    /// A level for each slice, of the first run that has them.
    fn series(&self, curve: &Curve, runs: &[&DigestedRun], style: Option<usize>) -> Vec<Line> {
        let mut slices = runs
            .iter()
            .filter_map(|run| curve.subject.group(run)?.of_slices(self.measure(curve)));
        let levels = slices.next().unwrap_or_default();
        let last = levels.last().into_iter();
        let points = (0u32..).zip(levels.iter().chain(last));
        let points = points.map(|(second, level)| (second.into(), level * self.scale()));
        let points: Vec<(f64, f64)> = points.collect();
        let line = (!points.is_empty()).then(|| Line::step(&*curve.label, points));
        line.into_iter().map(|line| line.styled(style)).collect()
    }

    /// Leaves out what is to be expected.
    pub(super) fn expect_nothing(&mut self) {
        if let Kind::Values { expected, .. } | Kind::Series { expected } = &mut self.kind {
            expected.clear();
        }
    }

    /// What is to be expected of the values, or of the series.
    fn expected(&self) -> impl Iterator<Item = Line> {
        let expected = match &self.kind {
            Kind::Values { expected, .. } | Kind::Series { expected } => expected.as_slice(),
            _ => &[],
        };
        expected.iter().map(|(label, points)| {
            let points = points.iter().map(|(x, y)| (*x, y * self.scale()));
            Line::straight(&**label, points.collect()).reference()
        })
    }

    /// The measure of a curve.
    fn measure<'a>(&'a self, curve: &'a Curve) -> &'a MeasureRef {
        curve.measure.as_ref().unwrap_or(&self.measure)
    }

    /// What values are multiplied with, to be in the unit of the axis.
    fn scale(&self) -> f64 {
        match self.measure.unit() {
            Unit::Share => 100.0,
            Unit::BitPerSecond => 1e-6,
            _ => 1.0,
        }
    }

    fn values(
        &self,
        curve: &Curve,
        runs: &[&DigestedRun],
        over: &str,
        style: Option<usize>,
    ) -> Vec<Line> {
        let mut points: Vec<(f64, Vec<f64>)> = Vec::new();
        for run in runs {
            let at = run.name.number(over);
            let value = curve
                .subject
                .group(run)
                .and_then(|group| group.value(self.measure(curve)));
            let (Some(at), Some(value)) = (at, value) else {
                continue;
            };
            match points.iter_mut().find(|(x, _)| *x == at) {
                Some((_, values)) => values.push(value),
                None => points.push((at, vec![value])),
            }
        }
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let factor = self.scale();
        let estimates = points
            .iter()
            .filter_map(|(x, values)| Some((*x, Estimate::of(values)?)));
        let estimates: Vec<_> = estimates.collect();
        if estimates.is_empty() {
            return Vec::new();
        }
        let line = |of: fn(&Estimate) -> f64| -> Vec<(f64, f64)> {
            estimates
                .iter()
                .map(|(x, it)| (*x, of(it) * factor))
                .collect()
        };
        let mut lines = vec![Line::marked(&*curve.label, line(|it| it.mean)).styled(style)];
        if estimates.iter().any(|(_, it)| it.half.is_some()) {
            lines.push(Line::straight("", line(Estimate::low)).reference());
            lines.push(Line::straight("", line(Estimate::high)).reference());
        }
        lines
    }
}
