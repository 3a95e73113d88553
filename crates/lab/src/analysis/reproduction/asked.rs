//! Numbers within a measure's name: what is asked of it.

use std::ops::RangeInclusive;

/// A number from 0 on that is finite, as in `above 155`.
pub(super) fn number(text: &str) -> Option<f64> {
    within(text, 0.0..=f64::MAX)
}

/// The share of a percentile, as in `p97`.
pub(super) fn percentile(text: &str) -> Option<f64> {
    let percent = within(text.strip_prefix('p')?, 0.0..=100.0)?;
    Some(percent / 100.0)
}

fn within(text: &str, range: RangeInclusive<f64>) -> Option<f64> {
    text.parse().ok().filter(|number| range.contains(number))
}
