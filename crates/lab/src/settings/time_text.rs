//! Times with units: inter-transmission times and distributions of times, as in `30ms:3ms`.
//!
//! A field `#[serde(with = "time_text::option")]` is a number of milliseconds in a file, or text
//! with units.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::{from_ms, parse_duration, to_ms};

use crate::traffic::{Distribution, RampUp, Table};

/// Parses a time with a unit and returns milliseconds; text in `ms` without rounding to ns.
///
/// # Errors
/// [`BadInput`] with the expected form.
pub(crate) fn parse_time_ms(text: &str) -> Result<f64, BadInput> {
    let ms = text.strip_suffix("ms").and_then(|ms| ms.parse().ok());
    match ms.filter(|ms: &f64| ms.is_finite() && *ms >= 0.0) {
        Some(ms) => Ok(ms),
        None => parse_duration(text).map(to_ms),
    }
}

/// Parses a time with a unit.
///
/// # Errors
/// [`BadInput`] with the expected form.
pub(crate) fn parse_time(text: &str) -> Result<Duration, BadInput> {
    // Numbers of files can have more decimals than `parse_duration` accepts.
    from_ms(parse_time_ms(text)?).map_or_else(|| parse_duration(text), Ok)
}

/// Parses a distribution of times and returns it in milliseconds: `30ms`, `30ms:3ms`,
/// `exponential:30ms`, `pareto:30ms:1.5`, `lognormal:30ms:10ms`, `values:20ms,30ms`,
/// `quantiles:0=10ms,1=50ms`, or `table:FILE`, a file of milliseconds.
///
/// # Errors
/// [`BadInput`] if a unit is missing, or for an invalid form or parameter.
pub(crate) fn parse_time_distribution(text: &str) -> Result<Distribution, BadInput> {
    let plain = without_units(text)?;
    plain.parse().map_err(|error| match plain == text {
        true => BadInput(format!("{error}")),
        false => BadInput(format!("invalid distribution of times `{text}`: {error}")),
    })
}

/// Converts the times of a distribution to plain numbers of milliseconds.
fn without_units(text: &str) -> Result<String, BadInput> {
    let invalid = || {
        BadInput(format!(
            "invalid distribution of times `{text}`: expected 30ms, 30ms:3ms (normal), \
             exponential:30ms, pareto:30ms:1.5, lognormal:30ms:10ms, values:20ms,30ms, \
             quantiles:0=10ms,1=50ms or table:FILE"
        ))
    };
    let ms = |time: &str| parse_time_ms(time).map(|ms| ms.to_string());
    let (name, parameters, separator) = distribution_parts(text);
    let parameters: Vec<&str> = parameters.split(separator).collect();
    let times: Vec<String> = match (name, &parameters[..]) {
        ("table", _) => return Ok(text.to_owned()),
        ("" | "constant" | "exponential", [mean]) => vec![ms(mean)?],
        ("" | "normal" | "lognormal", [mean, sd]) => vec![ms(mean)?, ms(sd)?],
        ("pareto", [mean, shape]) => vec![ms(mean)?, (*shape).to_owned()],
        ("values", values) => values.iter().map(|it| ms(it)).collect::<Result<_, _>>()?,
        ("quantiles", points) => {
            let points = points.iter().map(|point| {
                let (quantile, time) = point.split_once('=').ok_or_else(invalid)?;
                Ok(format!("{quantile}={}", ms(time)?))
            });
            points.collect::<Result<_, BadInput>>()?
        }
        _ => return Err(invalid()),
    };
    let times = times.join(separator);
    match name {
        "" => Ok(times),
        _ => Ok(format!("{name}:{times}")),
    }
}

/// Splits the text of a distribution into its name, which may be empty, its parameters, and their
/// separator.
fn distribution_parts(text: &str) -> (&str, &str, &'static str) {
    let (name, parameters) = match text.split_once(':') {
        Some((name, parameters)) if name.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            (name, parameters)
        }
        _ => ("", text),
    };
    let separator = match name {
        "values" | "quantiles" => ",",
        _ => ":",
    };
    (name, parameters, separator)
}

/// Formats a table of milliseconds for [`parse_time_distribution`].
pub(crate) fn table_text(table: &Table) -> String {
    with_units(&table.to_text())
}

/// Adds the unit to each time of a distribution that has plain numbers of milliseconds.
fn with_units(text: &str) -> String {
    let (name, parameters, separator) = distribution_parts(text);
    let times = parameters.split(separator).enumerate();
    let times = times.map(|(place, number)| match (name, place) {
        ("pareto", 1) => number.to_owned(),
        _ => format!("{number}ms"),
    });
    let times = times.collect::<Vec<_>>().join(separator);
    match name {
        "" => times,
        _ => format!("{name}:{times}"),
    }
}

/// Value that an experiment file gives as a number of milliseconds, or as text with units.
pub(crate) trait TimeText: Sized {
    /// Parses text with units.
    fn parse_text(text: &str) -> Result<Self, BadInput>;

    /// Formats text with units for [`TimeText::parse_text`].
    fn to_text(&self) -> String;
}

impl TimeText for Distribution {
    fn parse_text(text: &str) -> Result<Self, BadInput> {
        parse_time_distribution(text)
    }

    fn to_text(&self) -> String {
        with_units(&self.to_string())
    }
}

impl TimeText for Itt {
    fn parse_text(text: &str) -> Result<Self, BadInput> {
        text.parse()
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

/// Optional values of files: a single time is written as a number.
pub(crate) mod option {
    use std::fmt;
    use std::marker::PhantomData;

    use pillion_cli::settings::text::Text;
    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serialize, Serializer};

    use super::TimeText;

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: TimeText,
        D: Deserializer<'de>,
    {
        from.deserialize_any(NumberOrText(PhantomData)).map(Some)
    }

    pub(crate) fn serialize<T: TimeText, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let Some(value) = value else {
            return to.serialize_none();
        };
        let text = value.to_text();
        let number = text
            .strip_suffix("ms")
            .and_then(|ms| ms.parse::<f64>().ok());
        match number {
            Some(ms) => Text(ms).serialize(to),
            None => to.serialize_str(&text),
        }
    }

    struct NumberOrText<T>(PhantomData<T>);

    impl<T: TimeText> Visitor<'_> for NumberOrText<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("milliseconds, or text with units, as in \"30ms:3ms\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            T::parse_text(text).map_err(E::custom)
        }

        fn visit_i64<E: Error>(self, ms: i64) -> Result<T, E> {
            self.visit_str(&format!("{ms}ms"))
        }

        fn visit_u64<E: Error>(self, ms: u64) -> Result<T, E> {
            self.visit_str(&format!("{ms}ms"))
        }

        fn visit_f64<E: Error>(self, ms: f64) -> Result<T, E> {
            self.visit_str(&format!("{ms}ms"))
        }
    }
}

/// Mean inter-transmission time and its standard deviation: `30ms` or `30ms:3ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Itt {
    /// Mean.
    pub mean: Duration,
    /// Standard deviation.
    pub sd: Duration,
}

impl Itt {
    /// Returns the time between the starts of two streams.
    #[must_use]
    pub fn ramp_up(self) -> RampUp {
        match self.sd.is_zero() {
            true => RampUp::Fixed(self.mean),
            false => RampUp::Normal {
                mean: self.mean,
                sd: self.sd,
            },
        }
    }
}

impl From<Itt> for Distribution {
    fn from(itt: Itt) -> Self {
        let mean = to_ms(itt.mean);
        match to_ms(itt.sd) {
            0.0 => Self::constant(mean),
            sd => Self::Normal { mean, sd },
        }
    }
}

impl FromStr for Itt {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let (mean, sd) = text.split_once(':').unwrap_or((text, "0ms"));
        Ok(Self {
            mean: parse_time(mean)?,
            sd: parse_time(sd)?,
        })
    }
}

impl fmt::Display for Itt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", to_ms(self.mean))?;
        match self.sd.is_zero() {
            true => Ok(()),
            false => write!(f, ":{}ms", to_ms(self.sd)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn itt_has_deviation_only_where_given() {
        let itt = |mean, sd| Itt {
            mean: Duration::from_micros(mean),
            sd: Duration::from_micros(sd),
        };
        for (text, times) in [
            ("30ms:3ms", itt(30_000, 3_000)),
            ("100.1ms", itt(100_100, 0)),
        ] {
            assert_eq!(text.parse(), Ok(times));
            assert_eq!(times.to_string(), text);
        }
        let fine: Itt = "0.1953125ms".parse().unwrap();
        assert_eq!(fine.mean.as_nanos(), 195_313);
    }

    #[test]
    fn invalid_itt_is_rejected() {
        for mistake in ["", "x", "-1ms", "30ms:", ":3ms", "30", "30ms:3"] {
            assert!(mistake.parse::<Itt>().is_err(), "{mistake}");
        }
    }

    #[test]
    fn distribution_of_times_is_formatted_as_parsed() {
        for text in [
            "30ms",
            "30ms:3ms",
            "0.3ms",
            "exponential:30ms",
            "pareto:300ms:1.5",
            "lognormal:90ms:30ms",
            "values:20ms,30.125ms",
            "quantiles:0=10ms,0.5=30ms,1=100ms",
        ] {
            let distribution = parse_time_distribution(text).unwrap();
            assert_eq!(distribution.to_text(), text);
        }
        let seconds = parse_time_distribution("exponential:1.5s").unwrap();
        assert_eq!(seconds.mean().to_string(), "1500");
    }

    #[test]
    fn time_without_unit_is_rejected_with_remedy() {
        for text in [
            "30",
            "30:3",
            "exponential:30",
            "pareto:30:1.5",
            "lognormal:30ms:3",
            "values:1ms,2",
            "quantiles:0=1,1=2ms",
        ] {
            let error = parse_time_distribution(text).unwrap_err().0;
            assert!(error.contains("add a unit, as in"), "{text}: {error}");
        }
        for text in ["weibull:3ms", "pareto:3ms", "1ms:2ms:3ms", "quantiles:1ms"] {
            let error = parse_time_distribution(text).unwrap_err().0;
            assert!(error.contains("expected 30ms, 30ms:3ms"), "{text}: {error}");
        }
    }
}
