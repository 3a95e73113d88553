//! Figures of published experiments: distributions with a band over seeds, and values over a
//! parameter with intervals.

use pillion_stats::measure::Unit;
use pillion_stats::report::{Axis, Figure, Line, STYLES, StreamKind};

use super::{Estimate, MeasuredRun};
use crate::measure_ref::{MeasureRef, levels};
use crate::run_key::{Part, Selector, values};
use crate::settings::experiment::{Curve, FigureKind, Sketch};

/// Line styles that belong to no kind of streams.
const OTHER_STYLES: [usize; 3] = [3, 4, 5];

impl Sketch {
    /// Returns the figure as published, and for a distribution also its tail.
    pub(super) fn views(&self) -> impl Iterator<Item = (&'static str, Self)> {
        let tail = (self.kind == FigureKind::Cdf).then(|| {
            let tail = Self {
                kind: FigureKind::Ccdf,
                max: None,
                ..self.clone()
            };
            ("tail", tail)
        });
        std::iter::once(("as published", self.clone())).chain(tail)
    }

    /// Draws the figure from runs whose names also match `extra`; `None` without such runs.
    #[must_use]
    pub fn draw(&self, runs: &[MeasuredRun], extra: &Selector, kernel: &str) -> Option<Figure> {
        let curves = self.series.iter().zip(self.styles());
        let series: Vec<_> = curves
            .filter_map(|(curve, style)| {
                let of = runs.iter().filter(|run| run.belongs_to(&curve.runs, extra));
                let of: Vec<_> = of.collect();
                (!of.is_empty()).then_some((curve, style, of))
            })
            .collect();
        let mut lines: Vec<Line> = series
            .iter()
            .rev()
            .enumerate()
            .rev()
            .flat_map(|(height, (curve, style, of))| {
                let (style, height) = (*style, height as f64);
                match self.kind {
                    FigureKind::Values => self.values(curve, of, style),
                    FigureKind::Cdf | FigureKind::Ccdf => self.distribution(curve, of, style),
                    FigureKind::Boxes => self.box_line(curve, of, height),
                    FigureKind::Dots => self.dots(curve, of, height),
                    FigureKind::Series => self.series(curve, of, style),
                }
            })
            .collect();
        if lines.is_empty() {
            return None;
        }
        lines.extend(self.expected_lines());
        let scale = |label: &str, unit: &str| match self.log {
            true => Axis::log(label, unit),
            false => Axis::linear(label, unit),
        };
        let symbol = match self.measure.unit() {
            Unit::Share => "%",
            Unit::BitPerSecond => "Mbit/s",
            other => other.symbol(),
        };
        let (x, y) = match self.kind {
            FigureKind::Cdf => {
                let x = scale(&self.label, symbol);
                let y = Axis::linear("share of values up to this one", "");
                (
                    x,
                    Axis {
                        min: Some(self.from.unwrap_or(0.0)),
                        max: Some(1.0),
                        ..y
                    },
                )
            }
            FigureKind::Ccdf => {
                let x = scale(&self.label, symbol);
                let y = Axis::log("share of larger values", "");
                (
                    x,
                    Axis {
                        min: Some(1e-4),
                        max: Some(1.0),
                        ..y
                    },
                )
            }
            FigureKind::Boxes | FigureKind::Dots => {
                let names = series.iter().rev().map(|(curve, ..)| curve.label.clone());
                let x = scale(&self.label, symbol);
                let min = (!self.log).then_some(0.0);
                (Axis { min, ..x }, Axis::names("", names.collect()))
            }
            FigureKind::Series => {
                let y = Axis::linear(&*self.label, symbol);
                let min = Some(0.0);
                (scale("time", "s"), Axis { min, ..y })
            }
            FigureKind::Values => {
                let y = Axis::linear(&*self.label, symbol);
                let label = self.x_label.as_deref().unwrap_or_default();
                (
                    scale(label, ""),
                    Axis {
                        min: Some(0.0),
                        ..y
                    },
                )
            }
        };
        let seeds = match self.kind {
            FigureKind::Boxes => {
                "boxes from the 25th to the 75th percentile, divided at the median; lines from \
                 the 5th to the 95th; means over seeds"
            }
            FigureKind::Series => "slices of one second, first seed",
            FigureKind::Dots => "a dot per stream and seed, stacked by kind",
            FigureKind::Values | FigureKind::Cdf | FigureKind::Ccdf => {
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

    /// Assigns a line style to each curve. The first curve of each kind of streams has the style of
    /// its kind. Further curves get the other styles while there are any. The rest repeat the
    /// colour of their kind with another dash pattern, so that no curve looks like another kind.
    fn styles(&self) -> Vec<Option<usize>> {
        let mut styles = vec![None; self.series.len()];
        for (index, curve) in self.series.iter().enumerate() {
            let style = curve.stream.map(StreamKind::style);
            styles[index] = style.filter(|style| !styles.contains(&Some(*style)));
        }
        for free in OTHER_STYLES {
            let next = styles.iter().position(Option::is_none);
            if let Some(next) = next {
                styles[next] = Some(free);
            }
        }
        let other_styles = OTHER_STYLES.into_iter().cycle();
        for ((style, curve), other) in styles.iter_mut().zip(&self.series).zip(other_styles) {
            let repeated = STYLES + curve.stream.map_or(other, StreamKind::style);
            style.get_or_insert(repeated);
        }
        styles
    }

    fn distribution(
        &self,
        curve: &Curve,
        runs: &[&MeasuredRun],
        style: Option<usize>,
    ) -> Vec<Line> {
        let quantiles = runs
            .iter()
            .filter_map(|run| run.group(&curve.group)?.quantiles(self.measure(curve)));
        let quantiles: Vec<_> = quantiles.collect();
        if quantiles.is_empty() {
            return Vec::new();
        }
        let share = |level: f64| match self.kind {
            FigureKind::Ccdf => 1.0 - level,
            _ => level,
        };
        let points = levels().enumerate().filter_map(|(index, level)| {
            let at = quantiles.iter().filter_map(|it| it.get(index).copied());
            let share = share(level);
            Some((Estimate::from_values(&at.collect::<Vec<_>>())?, share)).filter(|_| share > 0.0)
        });
        let points: Vec<(Estimate, f64)> = points.collect();
        // All values drawn by quantiles are at least 0.
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

    fn box_line(&self, curve: &Curve, runs: &[&MeasuredRun], y: f64) -> Vec<Line> {
        let percentile = |percentile: u32| {
            let share = f64::from(percentile) / 100.0;
            let measure = self.measure(curve);
            let values = runs
                .iter()
                .filter_map(|run| run.group(&curve.group)?.quantile(measure, share));
            let values: Vec<_> = values.collect();
            Some(Estimate::from_values(&values)?.mean * self.scale())
        };
        let [a, b, c, d, e] = [5, 25, 50, 75, 95].map(percentile);
        let values = a.zip(b).zip(c).zip(d).zip(e);
        let box_line =
            values.map(|((((a, b), c), d), e)| Line::box_of(&*curve.label, [a, b, c, d, e], y));
        let style = curve.stream.map(StreamKind::style);
        box_line
            .into_iter()
            .map(|line| line.styled(style))
            .collect()
    }

    /// Draws a dot for each stream.
    fn dots(&self, curve: &Curve, runs: &[&MeasuredRun], y: f64) -> Vec<Line> {
        let values = runs.iter().filter_map(|run| {
            let group = run.group(&curve.group)?;
            Some(
                group
                    .per_stream(self.measure(curve))?
                    .iter()
                    .map(|it| it * self.scale()),
            )
        });
        let values: Vec<f64> = values.flatten().collect();
        let dots = (!values.is_empty()).then(|| Line::dots(&*curve.label, &values, y));
        let style = curve.stream.map(StreamKind::style);
        dots.into_iter().map(|line| line.styled(style)).collect()
    }

    /// Draws a level for each slice of the first run that has slices.
    fn series(&self, curve: &Curve, runs: &[&MeasuredRun], style: Option<usize>) -> Vec<Line> {
        let mut slices = runs
            .iter()
            .filter_map(|run| run.group(&curve.group)?.per_slice(self.measure(curve)));
        let levels = slices.next().unwrap_or_default();
        let last = levels.last().into_iter();
        let points = (0u32..).zip(levels.iter().chain(last));
        let points = points.map(|(second, level)| (second.into(), level * self.scale()));
        let points: Vec<(f64, f64)> = points.collect();
        let line = (!points.is_empty()).then(|| Line::step(&*curve.label, points));
        line.into_iter().map(|line| line.styled(style)).collect()
    }

    /// Draws the expected lines as references.
    fn expected_lines(&self) -> impl Iterator<Item = Line> {
        self.expected.iter().map(|expected| {
            let points = expected.points.iter();
            let points = points.map(|(x, y)| (*x, y * self.scale()));
            Line::straight(&*expected.label, points.collect()).reference()
        })
    }

    /// Returns a curve's own measure, otherwise the figure's.
    fn measure<'a>(&'a self, curve: &'a Curve) -> &'a MeasureRef {
        curve.measure.as_ref().unwrap_or(&self.measure)
    }

    /// Returns the factor that converts values to the axis's unit.
    fn scale(&self) -> f64 {
        match self.measure.unit() {
            Unit::Share => 100.0,
            Unit::BitPerSecond => 1e-6,
            _ => 1.0,
        }
    }

    fn values(&self, curve: &Curve, runs: &[&MeasuredRun], style: Option<usize>) -> Vec<Line> {
        let mut points: Vec<(f64, Vec<f64>)> = Vec::new();
        for run in runs {
            let at = run.name.number(self.x.as_deref().unwrap_or_default());
            let value = run
                .group(&curve.group)
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
            .filter_map(|(x, values)| Some((*x, Estimate::from_values(values)?)));
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

impl Sketch {
    /// Returns the figure at each value of the parameters that all curves have in common, as in
    /// `loss=10`. The published values are first. Each figure comes with its values.
    pub(super) fn at_values(&self, runs: &[MeasuredRun]) -> Vec<(Vec<String>, Self)> {
        let mut all = vec![(Vec::new(), self.clone())];
        for own in self.common_parts() {
            let values = own_and_other_values(own, runs);
            let at_values = all.iter().flat_map(|(chosen, sketch)| {
                values.iter().map(|value| {
                    let mut chosen = chosen.clone();
                    chosen.push(value.to_string());
                    (chosen, sketch.at(own, value))
                })
            });
            all = at_values.collect();
        }
        all
    }

    /// Returns the `key=value` parts of run names that are the same for all curves.
    fn common_parts(&self) -> Vec<&Part> {
        let Some((first, others)) = self.series.split_first() else {
            return Vec::new();
        };
        let parts = first.runs.parts().iter();
        let parts = parts.filter(|part| {
            let is_of_all = || others.iter().all(|it| it.runs.parts().contains(part));
            part.key().is_some() && is_of_all()
        });
        parts.collect()
    }

    /// Returns the figure with `value` in place of `own`. Expected lines apply only to the
    /// published value, so another value removes them.
    fn at(&self, own: &Part, value: &Part) -> Self {
        let mut sketch = self.clone();
        if own == value {
            return sketch;
        }
        for curve in &mut sketch.series {
            curve.runs = curve.runs.replacing(own, value);
        }
        sketch.expected.clear();
        sketch.title += &format!(", at {value}");
        sketch
    }
}

/// Returns all values that runs have for the key of `own`, which is first.
fn own_and_other_values<'a>(own: &'a Part, runs: &'a [MeasuredRun]) -> Vec<&'a Part> {
    let names = runs.iter().map(|it| &it.name);
    let others = values(names, own.key().unwrap_or_default());
    let others = others.into_iter().filter(|it| *it != own);
    std::iter::once(own).chain(others).collect()
}
