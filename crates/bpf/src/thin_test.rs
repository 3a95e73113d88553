use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When a stream counts as thin, so that it may bundle (LCN 2015, section III.B.2).
///
/// In words `dpifl[:MS]`, `spifl:N` or `always`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ThinTest {
    /// Dynamic limit: packets in flight x `itt_min` < minimum RTT.
    Dpifl {
        /// The shortest inter-transmission time of a thin stream, in whole microseconds.
        itt_min: Duration,
    },
    /// Static limit: at most this many packets in flight.
    Spifl {
        /// The most packets in flight of a thin stream.
        limit: u32,
    },
    /// Every stream; for experiments.
    Always,
}

impl Default for ThinTest {
    /// DPIFL with 10 ms, the lowest value that the paper justifies (from RFC 4828).
    fn default() -> Self {
        Self::Dpifl {
            itt_min: Duration::from_millis(10),
        }
    }
}

/// The reason why a [`ThinTest`] is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThinTestError {
    /// The minimum inter-transmission time is not a valid time.
    #[error("invalid time `{0}`: expected milliseconds above 0, at most 60000")]
    Time(String),
    /// The limit is not a valid number.
    #[error("invalid limit `{0}`: expected packets, 1 or more")]
    Limit(String),
    /// The limit is missing.
    #[error("spifl needs a limit, as in spifl:4")]
    NoLimit,
    /// Unknown test.
    #[error("expected dpifl[:MS], spifl:N or always")]
    Unknown,
}

impl FromStr for ThinTest {
    type Err = ThinTestError;

    fn from_str(text: &str) -> Result<Self, ThinTestError> {
        let (test, value) = text
            .split_once(':')
            .map_or((text, None), |(test, value)| (test, Some(value)));
        match (test, value) {
            ("dpifl", None) => Ok(Self::default()),
            ("dpifl", Some(value)) => match value.parse::<f64>() {
                Ok(ms) if ms > 0.0 && ms <= 60_000.0 => Ok(Self::Dpifl {
                    itt_min: Duration::from_secs_f64(ms / 1000.0),
                }),
                _ => Err(ThinTestError::Time(value.to_owned())),
            },
            ("spifl", Some(value)) => match value.parse() {
                Ok(limit) if limit > 0 => Ok(Self::Spifl { limit }),
                _ => Err(ThinTestError::Limit(value.to_owned())),
            },
            ("spifl", None) => Err(ThinTestError::NoLimit),
            ("always", None) => Ok(Self::Always),
            _ => Err(ThinTestError::Unknown),
        }
    }
}

impl TryFrom<String> for ThinTest {
    type Error = ThinTestError;

    fn try_from(text: String) -> Result<Self, ThinTestError> {
        text.parse()
    }
}

impl fmt::Display for ThinTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dpifl { itt_min } => write!(f, "dpifl:{}", itt_min.as_nanos() as f64 / 1e6),
            Self::Spifl { limit } => write!(f, "spifl:{limit}"),
            Self::Always => f.write_str("always"),
        }
    }
}

impl From<ThinTest> for String {
    fn from(test: ThinTest) -> Self {
        test.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thin_test_round_trips_through_text() {
        let dpifl = |us| ThinTest::Dpifl {
            itt_min: Duration::from_micros(us),
        };
        for (text, test) in [
            ("dpifl:10", dpifl(10_000)),
            ("dpifl:0.3", dpifl(300)),
            ("spifl:7", ThinTest::Spifl { limit: 7 }),
            ("always", ThinTest::Always),
        ] {
            assert_eq!(text.parse(), Ok(test));
            assert_eq!(test.to_string(), text);
        }
        assert_eq!("dpifl".parse(), Ok(dpifl(10_000)));
    }

    #[test]
    fn invalid_thin_tests_are_rejected() {
        for mistake in [
            "",
            "dpifl:",
            "dpifl:0",
            "dpifl:-1",
            "dpifl:NaN",
            "spifl",
            "spifl:x",
            "spifl:0",
            "always:1",
        ] {
            assert!(mistake.parse::<ThinTest>().is_err(), "{mistake}");
        }
    }
}
