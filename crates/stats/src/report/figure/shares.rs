//! The two figures of a distribution: its CDF, and its complement on a log scale.

use super::{Axis, Figure, Line, SideAxis};
use crate::report::Distribution;

const PERCENTILES: [(f64, &str); 6] = [
    (0.5, "p50"),
    (0.9, "p90"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (0.9999, "p99.99"),
    (0.99999, "p99.999"),
];

impl Figure {
    /// The complementary CDF: over each value of the `quantity`, the share of the samples that is
    /// greater, on a log scale, so that the tail can be read. `y` names the share, for example
    /// "share of messages that took longer". The line of each series ends at its largest sample.
    pub fn ccdf(
        title: impl Into<String>,
        quantity: Axis,
        y: impl Into<String>,
        series: &[(&str, &Distribution)],
    ) -> Self {
        let largest = series.iter().map(|(_, d)| d.len()).max().unwrap_or(0);
        let min = (largest > 0).then(|| round_down(1.0 / largest as f64));
        let lines = series.iter().map(|(label, d)| {
            let points = d.ccdf();
            Line::step(*label, from_axis(&quantity, points, 1.0))
        });
        Self {
            title: title.into(),
            caption: String::new(),
            lines: lines.collect(),
            x: quantity,
            y: Axis {
                min,
                max: Some(1.0),
                ..Axis::log(y, "")
            },
            side: Some(percentiles(|share| 1.0 - share)),
        }
    }

    /// The CDF: over each value of the `quantity`, the share of the samples that is not greater,
    /// from 0 to 1. `y` names the share, for example "share of messages that took no longer".
    pub fn cdf(
        title: impl Into<String>,
        quantity: Axis,
        y: impl Into<String>,
        series: &[(&str, &Distribution)],
    ) -> Self {
        let lines = series.iter().map(|(label, d)| {
            let mut points = from_axis(&quantity, d.cdf(), 0.0);
            if !points.is_empty() {
                points.push((f64::INFINITY, 1.0));
            }
            Line::step(*label, points)
        });
        Self {
            title: title.into(),
            caption: String::new(),
            lines: lines.collect(),
            x: quantity,
            y: Axis {
                min: Some(0.0),
                max: Some(1.0),
                ..Axis::linear(y, "")
            },
            side: Some(percentiles(|share| share)),
        }
    }
}

/// The curve from the lower end of the axis on, where that is given.
fn from_axis(axis: &Axis, mut points: Vec<(f64, f64)>, level: f64) -> Vec<(f64, f64)> {
    if let (Some(start), Some(&(first, _))) = (axis.min, points.first())
        && start < first
    {
        points.insert(0, (start, level));
    }
    points
}

fn percentiles(y: impl Fn(f64) -> f64) -> SideAxis {
    let ticks = PERCENTILES.iter().map(|&(p, name)| (y(p), name.into()));
    SideAxis {
        label: "percentile".into(),
        ticks: ticks.collect(),
    }
}

/// The next of 1, 2, 5 times a power of ten that is clearly below the share.
fn round_down(share: f64) -> f64 {
    let decade = 10_f64.powf(share.log10().floor());
    let steps = [5.0, 2.0, 1.0, 0.5].map(|s| s * decade);
    steps
        .into_iter()
        .find(|s| *s < share * 0.95)
        .unwrap_or(decade / 2.0)
}
