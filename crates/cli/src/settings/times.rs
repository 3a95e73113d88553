//! Durations, percentages and rates: with a unit on the command line, as numbers in experiment files.
//!
//! A field `#[serde(with = "times::seconds")]` or `times::milliseconds` is a number in a file, or
//! absent if it is an `Option`.

use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::settings::BadInput;

/// Parses a number with a unit (us, ms, s, m, h or d), as in `50ms`, `1.5s` or `1h`.
///
/// # Errors
/// [`BadInput`] with the expected form.
pub fn parse_duration(text: &str) -> Result<Duration, BadInput> {
    humantime::parse_duration(text).map_err(|_| {
        BadInput(match text.parse::<f64>() {
            Ok(_) => format!("invalid duration `{text}`: add a unit, as in `{text}ms` or `{text}s`"),
            Err(_) => format!(
                "invalid duration `{text}`: expected a number and a unit (us, ms, s, m, h, d), as in `50ms`"
            ),
        })
    })
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
    let number = text
        .strip_suffix('%')
        .and_then(|it| it.trim_end().parse().ok());
    number
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| {
            BadInput(format!(
                "invalid percentage `{text}`: expected 0% to 100%, as in `5%`"
            ))
        })
}

/// Parses a rate in tc's units (bit, kbit, mbit, gbit), as in `5mbit`, and returns bit/s.
///
/// # Errors
/// [`BadInput`] with the expected form.
pub fn parse_rate(text: &str) -> Result<f64, BadInput> {
    let units = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)];
    let parse =
        |(unit, factor): (&str, f64)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor);
    let rate = units.into_iter().find_map(parse);
    rate.filter(|rate| rate.is_finite() && *rate > 0.0).ok_or_else(|| {
        BadInput(format!(
            "invalid rate `{text}`: expected a number above 0 and a unit (bit, kbit, mbit, gbit), as in `5mbit`"
        ))
    })
}

/// Parses a bare number of milliseconds, as in the lists of experiment files.
///
/// # Errors
/// [`BadInput`] with the expected form.
pub fn parse_ms(text: &str) -> Result<Duration, BadInput> {
    let ms = text.parse().ok();
    ms.and_then(of_ms).ok_or_else(|| {
        BadInput(format!(
            "invalid time `{text}`: expected milliseconds, as in 30"
        ))
    })
}

/// The time of so many milliseconds; `None` if it is no time.
pub fn of_ms(ms: f64) -> Option<Duration> {
    of_s(ms * 1e-3)
}

fn of_s(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

/// Milliseconds.
#[must_use]
pub fn to_ms(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

fn to_s(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e9
}

/// How long something lasts: seconds above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Length(pub Duration);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let time: Duration = seconds::deserialize(from)?;
        Self::of(time).map_err(D::Error::custom)
    }
}

impl Length {
    /// It, of this time.
    fn of(time: Duration) -> Result<Self, BadInput> {
        match time.is_zero() {
            true => Err(BadInput("expected seconds above 0, as in 0.5".to_owned())),
            false => Ok(Self(time)),
        }
    }
}

impl FromStr for Length {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        Self::of(parse_duration(text)?)
    }
}

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        seconds::serialize(&self.0, to)
    }
}

macro_rules! unit {
    ($name:ident, $of:ident, $to:ident, $expected:literal) => {
        #[doc = concat!("A time of a file in ", stringify!($name), ", for `#[serde(with = ...)]`.")]
        pub mod $name {
            use std::time::Duration;

            use serde::de::Error;
            use serde::{Deserialize, Deserializer, Serializer};

            use super::Time;
            use crate::settings::text;

            /// Reads a number.
            pub fn deserialize<'de, T: Time, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
                let number = f64::deserialize(from).ok();
                let time = number.and_then(super::$of).map(T::of);
                time.ok_or_else(|| D::Error::custom(concat!("expected ", $expected)))
            }

            /// Writes a number.
            pub fn serialize<T: Time, S: Serializer>(time: &T, to: S) -> Result<S::Ok, S::Error> {
                let time: Option<Duration> = time.get();
                match time {
                    Some(time) => text::serialize(&super::$to(time), to),
                    None => to.serialize_none(),
                }
            }
        }
    };
}

unit!(seconds, of_s, to_s, "seconds, as in 0.5");
unit!(milliseconds, of_ms, to_ms, "milliseconds, as in 75");

/// A time, or perhaps none.
pub trait Time {
    /// It, of this time.
    fn of(time: Duration) -> Self;
    /// The time, if there is one.
    fn get(&self) -> Option<Duration>;
}

impl Time for Duration {
    /// It, of this time.
    fn of(time: Duration) -> Self {
        time
    }

    /// The time, if there is one.
    fn get(&self) -> Option<Duration> {
        Some(*self)
    }
}

impl Time for Option<Duration> {
    /// It, of this time.
    fn of(time: Duration) -> Self {
        Some(time)
    }

    /// The time, if there is one.
    fn get(&self) -> Option<Duration> {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_without_unit_is_refused_with_a_remedy() {
        for mistake in ["", "x", "-1s", "NaN", "inf", "5 parsecs"] {
            assert!(parse_duration(mistake).is_err(), "{mistake}");
        }
        let error = parse_duration("20").unwrap_err();
        assert!(error.0.contains("as in `20ms`"), "{error}");
        assert_eq!(parse_duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(parse_duration("1h").unwrap(), Duration::from_secs(3600));
    }

    #[test]
    fn percentage_needs_its_sign_and_ends_at_100() {
        assert_eq!(parse_percent("0.1%").unwrap().to_string(), "0.1");
        for mistake in ["5", "101%", "-1%", "%", "NaN%"] {
            assert!(parse_percent(mistake).is_err(), "{mistake}");
        }
    }

    #[test]
    fn rate_is_in_the_units_of_tc() {
        assert_eq!(parse_rate("2.5mbit").unwrap().to_string(), "2500000");
        for mistake in ["5", "0mbit", "-1kbit", "5M", "mbit"] {
            assert!(parse_rate(mistake).is_err(), "{mistake}");
        }
    }
}
