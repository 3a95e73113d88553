//! Maps values to an axis and chooses its ticks.

use super::{Axis, Scale};
use crate::report::number;

/// The largest value shown; sums of larger values overflow.
const MAX_VALUE: f64 = 1e300;

/// The range of an axis and its ticks.
pub(super) struct Domain {
    scale: Scale,
    low: f64,
    high: f64,
    pub(super) ticks: Vec<f64>,
    /// The finest difference that tick labels must show.
    step: f64,
    /// Names at 0, 1 and so on instead of numbers.
    names: Vec<String>,
}

impl Domain {
    /// A range that covers the values in the supported range, unless the axis sets one. Has about
    /// `tick_count` ticks at round numbers.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>, tick_count: usize) -> Self {
        if !axis.names.is_empty() {
            return Self::named(&axis.names);
        }
        let floor = match axis.scale {
            Scale::Linear => -MAX_VALUE,
            Scale::Log => 1.0 / MAX_VALUE,
        };
        let usable = |v: &f64| (floor..=MAX_VALUE).contains(v);
        let (low, high) = values
            .filter(usable)
            .fold(None, |range: Option<(f64, f64)>, v| {
                Some(range.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
            })
            .unwrap_or((0.1, 1.0));
        let given_low = axis.min.filter(usable);
        let given_high = axis.max.filter(usable);
        let low = given_low.unwrap_or(low);
        let high = given_high.unwrap_or(high);
        let rounded = (given_low.is_none(), given_high.is_none());
        match axis.scale {
            Scale::Linear => Self::linear(low, high, rounded, tick_count),
            Scale::Log => Self::log(low, high, rounded, tick_count),
        }
    }

    /// Names in a row, with half a step of margin at both ends.
    fn named(names: &[String]) -> Self {
        let count = names.len();
        Self {
            scale: Scale::Linear,
            low: -0.5,
            high: count as f64 - 0.5,
            ticks: (0..count).map(|index| index as f64).collect(),
            step: 1.0,
            names: names.to_vec(),
        }
    }

    fn linear(low: f64, high: f64, rounded: (bool, bool), tick_count: usize) -> Self {
        let enough = low.abs().max(high.abs()).max(1e-290) * 1e-9;
        let high = match high - low > enough {
            true => high,
            false => low + low.abs().max(1.0),
        };
        let step = nice_step((high - low) / tick_count.max(1) as f64);
        let low = if rounded.0 {
            (low / step).floor() * step
        } else {
            low
        };
        let high = if rounded.1 {
            (high / step).ceil() * step
        } else {
            high
        };
        let first = (low / step - 1e-6).ceil();
        let last = (high / step + 1e-6).floor();
        let ticks = (0..=(last - first).clamp(0.0, 100.0) as usize)
            .map(|i| (first + i as f64) * step)
            .collect();
        Self {
            scale: Scale::Linear,
            low,
            high,
            ticks,
            step,
            names: Vec::new(),
        }
    }

    fn log(low: f64, high: f64, rounded: (bool, bool), tick_count: usize) -> Self {
        let (low, high) = match (high > low * 1.001, rounded.0) {
            (true, _) => (low, high),
            (false, true) => (low / 2.0, low * 2.0),
            (false, false) => (low, low * 10.0),
        };
        let low = if rounded.0 {
            round_log(low, false)
        } else {
            low
        };
        let high = if rounded.1 {
            round_log(high, true)
        } else {
            high
        };
        let first = low.log10().floor() as i32;
        let last = high.log10().ceil() as i32;
        let decades = (last - first).unsigned_abs() as usize;
        let multiples: &[f64] = match decades * 3 <= tick_count {
            true => &[1.0, 2.0, 5.0],
            false => &[1.0],
        };
        let ticks = (first..=last)
            .rev()
            .step_by(decades.div_ceil(tick_count.max(1)).max(1))
            .flat_map(|e| multiples.iter().map(move |m| m * 10_f64.powi(e)))
            .filter(|t| (low * 0.999..=high * 1.001).contains(t));
        Self {
            scale: Scale::Log,
            low,
            high,
            ticks: ticks.collect(),
            step: 0.0,
            names: Vec::new(),
        }
    }

    /// The relative position of a value, 0 at the lower end of the range and 1 at the upper.
    /// Infinities, and values up to 0 on a log scale, are at the ends.
    pub(super) fn position(&self, value: f64) -> f64 {
        if value.is_infinite() {
            return f64::from(value > 0.0);
        }
        let position = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log if value <= 0.0 => 0.0,
            Scale::Log => (value / self.low).log10() / (self.high / self.low).log10(),
        };
        position.clamp(-1e4, 1e4)
    }

    pub(super) fn label(&self, tick: f64) -> String {
        if let Some(name) = self.names.get(tick as usize) {
            return name.clone();
        }
        match self.scale {
            Scale::Linear => number::tick(tick, self.step),
            Scale::Log => number::tick(tick, 10_f64.powf(tick.log10().floor())),
        }
    }

    /// The scale and the range, for the figure's interactive readout.
    pub(super) fn describe(&self) -> String {
        let scale = match self.scale {
            Scale::Linear => "linear",
            Scale::Log => "log",
        };
        format!("{scale} {} {}", self.low, self.high)
    }
}

/// The smallest of 1, 2, 5 times a power of ten not below the distance.
fn nice_step(distance: f64) -> f64 {
    let decade = 10_f64.powf(distance.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|s| s * decade);
    steps
        .into_iter()
        .find(|s| *s >= distance * 0.999)
        .unwrap_or(decade * 10.0)
}

/// The next of 1, 2, 5 times a power of ten, up or down.
fn round_log(value: f64, up: bool) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let mut steps = [1.0, 2.0, 5.0, 10.0].map(|s| s * decade);
    if up {
        let next = steps.into_iter().find(|s| *s >= value * 0.999);
        return next.unwrap_or(value);
    }
    steps.reverse();
    let next = steps.into_iter().find(|s| *s <= value * 1.001);
    next.unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64], tick_count: usize) -> Vec<String> {
        let domain = Domain::new(axis, values.iter().copied(), tick_count);
        let labels = domain.ticks.iter().map(|t| domain.label(*t));
        labels.map(|l| l.replace('\u{a0}', " ")).collect()
    }

    #[test]
    fn linear_ticks_are_round_and_cover_the_data() {
        let axis = Axis::linear("", "");
        assert_eq!(
            labels(&axis, &[3.0, 1486.0], 4),
            ["0", "500", "1 000", "1 500"]
        );
        assert_eq!(
            labels(&axis, &[0.0, 1.0], 5),
            ["0", "0.2", "0.4", "0.6", "0.8", "1"]
        );
        assert_eq!(
            labels(&axis, &[-0.13, 0.21], 4),
            ["\u{2212}0.2", "\u{2212}0.1", "0", "0.1", "0.2", "0.3"]
        );
    }

    #[test]
    fn log_ticks_are_decades_or_finer() {
        let axis = Axis::log("", "");
        assert_eq!(
            labels(&axis, &[0.0012, 1.0], 6),
            ["1", "0.1", "0.01", "0.001"]
        );
        assert_eq!(labels(&axis, &[3.0, 40.0], 6), ["10", "20", "50", "2", "5"]);
        assert_eq!(labels(&axis, &[1e-12, 1.0], 4).len(), 5);
    }

    #[test]
    fn extreme_ranges_give_finite_positions_and_few_ticks() {
        let odd = [
            0.0,
            -0.0,
            1e-320,
            1e16,
            1e16 + 2.0,
            -1e308,
            1e308,
            f64::NAN,
            f64::INFINITY,
        ];
        for axis in [Axis::linear("", ""), Axis::log("", "")] {
            for (min, max) in odd.iter().flat_map(|a| odd.map(|b| (Some(*a), Some(b)))) {
                let axis = Axis {
                    min,
                    max,
                    ..axis.clone()
                };
                for domain in [
                    Domain::new(&axis, odd.into_iter(), 8),
                    Domain::new(
                        &Axis {
                            min: None,
                            ..axis.clone()
                        },
                        odd.into_iter(),
                        8,
                    ),
                ] {
                    assert!(domain.ticks.len() <= 101, "{}", domain.describe());
                    for v in odd.iter().filter(|v| !v.is_nan()) {
                        assert!(domain.position(*v).is_finite(), "{v} {}", domain.describe());
                    }
                }
            }
        }
    }
}
