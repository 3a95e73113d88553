//! Times of the command line and of files: milliseconds or seconds, with a fraction where wanted.

use std::time::Duration;

/// Milliseconds, as in `30.5`.
///
/// # Errors
/// What is wrong.
pub fn parse_ms(text: &str) -> Result<Duration, String> {
    parse(text, 1e-3).ok_or_else(|| format!("`{text}` is no time in milliseconds"))
}

/// Seconds, as in `0.5`.
///
/// # Errors
/// What is wrong.
pub fn parse_s(text: &str) -> Result<Duration, String> {
    parse(text, 1.0).ok_or_else(|| format!("`{text}` is no time in seconds"))
}

fn parse(text: &str, unit: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse::<f64>().ok()? * unit).ok()
}
