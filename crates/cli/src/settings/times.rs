//! Times of the command line and of files: milliseconds or seconds, with a fraction where wanted.
//!
//! A field `#[serde(with = "times::seconds")]` or `times::milliseconds` is a number in files, and
//! may be absent if it is an `Option`.

use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::settings::BadInput;

/// Milliseconds, as in `30.5`.
///
/// # Errors
/// [`BadInput`] that says what is wrong.
pub fn parse_ms(text: &str) -> Result<Duration, BadInput> {
    let ms = text.parse().ok();
    ms.and_then(of_ms)
        .ok_or_else(|| BadInput(format!("`{text}` is no time in milliseconds")))
}

/// Seconds, as in `0.5`.
///
/// # Errors
/// [`BadInput`] that says what is wrong.
pub fn parse_s(text: &str) -> Result<Duration, BadInput> {
    let seconds = text.parse().ok();
    seconds
        .and_then(of_s)
        .ok_or_else(|| BadInput(format!("`{text}` is no time in seconds")))
}

/// The time between two samples in milliseconds, as in `30.5`.
///
/// # Errors
/// [`BadInput`] that says what is wrong.
pub fn parse_interval(text: &str) -> Result<Duration, BadInput> {
    let ms = text
        .parse()
        .ok()
        .filter(|ms| (1.0..=86_400_000.0).contains(ms));
    ms.and_then(of_ms)
        .ok_or_else(|| "expected milliseconds, 1 to 86400000 (a day)".into())
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
        Self::of(parse_s(text)?)
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
    fn what_is_no_time_is_refused() {
        for mistake in ["", "x", "-1", "NaN", "inf"] {
            assert!(parse_ms(mistake).is_err(), "{mistake}");
        }
    }
}
