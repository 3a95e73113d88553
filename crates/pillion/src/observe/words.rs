//! How estimates are written.

use crate::trial::Estimate;
use pillion_stats::measure::Unit;
use pillion_stats::report::number;

/// A value with its interval, as in `12.3 (9.8 to 15.0)`.
pub fn estimate(estimate: Option<Estimate>, unit: Unit) -> String {
    let Some(Estimate { value, interval }) = estimate else {
        return number::MISSING.to_owned();
    };
    let value = one(value, unit);
    match interval {
        Some((low, high)) => format!("{value} ({} to {})", one(low, unit), one(high, unit)),
        None => value,
    }
}

fn one(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Share => number::percent(value),
        _ => number::millis(value),
    }
}
