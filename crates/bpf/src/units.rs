//! Durations, percentages and rates as text with a unit, for options of the command line and keys of files.

use std::fmt;
use std::time::Duration;

use serde::Serializer;
use serde::de::{Deserializer, Error, Visitor};

/// Parses a number with a unit (us, ms, s, m, h or d), as in `50ms`, `1.5s` or `1h`.
///
/// # Errors
/// The remedy if the unit is missing, otherwise the expected form.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| match text.parse::<f64>() {
        Ok(_) => format!("invalid duration `{text}`: add a unit, as in `{text}ms` or `{text}s`"),
        Err(_) => format!(
            "invalid duration `{text}`: expected a number and a unit (us, ms, s, m, h, d), as in \
             `50ms`"
        ),
    })
}

/// Formats a duration for [`parse_duration`]: whole seconds in `s`, others in `ms`.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    match duration.subsec_nanos() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", duration.as_nanos() as f64 / 1e6),
    }
}

/// Parses a percentage from 0 % to 100 %, as in `5%` or `0.1%`, and returns the number before the
/// sign.
///
/// # Errors
/// The expected form.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text
        .strip_suffix('%')
        .and_then(|it| it.trim_end().parse().ok());
    number
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| format!("invalid percentage `{text}`: expected 0% to 100%, as in `5%`"))
}

/// Parses a rate in tc's units (bit, kbit, mbit, gbit), as in `5mbit`, and returns bit/s.
///
/// # Errors
/// The expected form.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let units = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)];
    let parse =
        |(unit, factor): (&str, f64)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor);
    let rate = units.into_iter().find_map(parse);
    rate.filter(|rate| rate.is_finite() && *rate > 0.0).ok_or_else(|| {
        format!(
            "invalid rate `{text}`: expected a number above 0 and a unit (bit, kbit, mbit, gbit), as in \
             `5mbit`"
        )
    })
}

/// Serializes an optional duration for [`parse_duration`].
pub fn serialize_duration<S: Serializer>(
    duration: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => to.serialize_some(&format_duration(*duration)),
        None => to.serialize_none(),
    }
}

/// Deserializes text through `parse`. Numbers are passed as text, so that the error names the
/// missing unit.
///
/// # Errors
/// The text of `parse`, or a type mismatch.
pub fn deserialize<'de, T, D>(from: D, parse: fn(&str) -> Result<T, String>) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    from.deserialize_any(TextVisitor {
        parse,
        expected: "a string with a unit, as on the command line",
    })
}

/// Reads a text, or a number as text.
pub struct TextVisitor<T> {
    /// Returns the value of a text, or the mistake in it.
    pub parse: fn(&str) -> Result<T, String>,
    /// Description of valid input, for errors.
    pub expected: &'static str,
}

impl<T> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
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
        assert!(error.contains("as in `20ms`"), "{error}");
    }

    #[test]
    fn formatted_duration_parses_to_the_same_value() {
        for text in ["1.5ms", "1500ms", "2s", "90s", "0s"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
        let hour = Duration::from_secs(3600);
        assert_eq!(parse_duration("1h").unwrap(), hour);
        assert_eq!(parse_duration("1.5s"), parse_duration("1500ms"));
    }

    #[test]
    fn percentage_needs_its_sign_and_ends_at_100() {
        assert_eq!(parse_percent("0.1%").unwrap().to_string(), "0.1");
        for mistake in ["5", "101%", "-1%", "%", "NaN%"] {
            assert!(parse_percent(mistake).is_err(), "{mistake}");
        }
    }
}
