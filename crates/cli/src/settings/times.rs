//! Durations, percentages and rates: with a unit on the command line, as numbers in experiment files.
//!
//! A field `#[serde(with = "times::seconds")]` or `times::milliseconds` is a number in a file, or
//! absent if it is an `Option`.

use std::str::FromStr;
use std::time::Duration;

use pillion_bpf::units;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::settings::BadInput;

/// Parses a number with a unit (us, ms, s, m, h or d), as in `50ms`, `1.5s` or `1h`.
///
/// # Errors
/// [`BadInput`] with the expected form.
pub fn parse_duration(text: &str) -> Result<Duration, BadInput> {
    units::parse_duration(text).map_err(BadInput)
}

/// Parses a sampling interval from 1 ms to 1 day, as in `500ms`.
///
/// # Errors
/// [`BadInput`] with the expected form or range.
pub fn parse_interval(text: &str) -> Result<Duration, BadInput> {
    let interval = parse_duration(text)?;
    let range = Duration::from_millis(1)..=Duration::from_secs(86_400);
    if range.contains(&interval) {
        Ok(interval)
    } else {
        Err(BadInput(format!(
            "invalid interval `{text}`: expected 1ms to 1d"
        )))
    }
}

/// Parses a percentage from 0 % to 100 %, as in `5%` or `0.1%`, and returns the number before the
/// sign.
///
/// # Errors
/// [`BadInput`] with the expected form.
pub fn parse_percent(text: &str) -> Result<f64, BadInput> {
    units::parse_percent(text).map_err(BadInput)
}

/// Parses a rate in tc's units (bit, kbit, mbit, gbit), as in `5mbit`, and returns bit/s.
///
/// # Errors
/// [`BadInput`] with the expected form.
pub fn parse_rate(text: &str) -> Result<f64, BadInput> {
    units::parse_rate(text).map_err(BadInput)
}

/// Converts milliseconds; `None` if negative, too large or not a number.
pub fn from_ms(ms: f64) -> Option<Duration> {
    from_s(ms * 1e-3)
}

fn from_s(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

/// Converts to milliseconds.
#[must_use]
pub fn to_ms(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

fn to_s(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e9
}

/// A duration above 0, in seconds in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PositiveDuration(pub Duration);

impl<'de> Deserialize<'de> for PositiveDuration {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let time: Duration = seconds::deserialize(from)?;
        Self::new(time).map_err(D::Error::custom)
    }
}

impl PositiveDuration {
    fn new(time: Duration) -> Result<Self, BadInput> {
        match time.is_zero() {
            true => Err("expected a duration above 0".into()),
            false => Ok(Self(time)),
        }
    }
}

impl FromStr for PositiveDuration {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        Self::new(parse_duration(text)?)
    }
}

impl Serialize for PositiveDuration {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        seconds::serialize(&self.0, to)
    }
}

macro_rules! unit {
    ($name:ident, $of:ident, $to:ident, $expected:literal) => {
        #[doc = concat!("A duration in ", stringify!($name), " in files, for `#[serde(with = ...)]`.")]
        pub mod $name {
            use std::time::Duration;

            use serde::de::Error;
            use serde::{Deserialize, Deserializer, Serializer};

            use super::Time;
            use crate::settings::text;

            /// Reads a number.
            pub fn deserialize<'de, T: Time, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
                let number = f64::deserialize(from).ok();
                let time = number.and_then(super::$of).map(T::from_duration);
                time.ok_or_else(|| D::Error::custom(concat!("expected ", $expected)))
            }

            /// Writes a number.
            pub fn serialize<T: Time, S: Serializer>(time: &T, to: S) -> Result<S::Ok, S::Error> {
                let time: Option<Duration> = time.duration();
                match time {
                    Some(time) => text::serialize(&super::$to(time), to),
                    None => to.serialize_none(),
                }
            }
        }
    };
}

unit!(seconds, from_s, to_s, "seconds, as in 0.5");
unit!(milliseconds, from_ms, to_ms, "milliseconds, as in 75");

/// A duration or an optional duration.
pub trait Time {
    /// Wraps a duration.
    fn from_duration(time: Duration) -> Self;
    /// Returns the duration, if any.
    fn duration(&self) -> Option<Duration>;
}

impl Time for Duration {
    /// Wraps a duration.
    fn from_duration(time: Duration) -> Self {
        time
    }

    /// Returns the duration, if any.
    fn duration(&self) -> Option<Duration> {
        Some(*self)
    }
}

impl Time for Option<Duration> {
    /// Wraps a duration.
    fn from_duration(time: Duration) -> Self {
        Some(time)
    }

    /// Returns the duration, if any.
    fn duration(&self) -> Option<Duration> {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_from_1ms_to_1d() {
        assert_eq!(parse_interval("1s").unwrap(), Duration::from_secs(1));
        for mistake in ["1", "0s", "999us", "25h"] {
            assert!(parse_interval(mistake).is_err(), "{mistake}");
        }
    }

    #[test]
    fn rate_has_units_of_tc() {
        assert_eq!(parse_rate("2.5mbit").unwrap().to_string(), "2500000");
        for mistake in ["5", "0mbit", "-1kbit", "5M", "mbit"] {
            assert!(parse_rate(mistake).is_err(), "{mistake}");
        }
    }
}
