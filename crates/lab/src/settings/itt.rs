//! Inter-transmission times of options and files.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::{parse_ms, to_ms};

use crate::traffic::{Distribution, RampUp};

/// The mean inter-transmission time and its standard deviation; `30` or `30:3`, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Itt {
    /// The mean.
    pub mean: Duration,
    /// The standard deviation.
    pub sd: Duration,
}

impl Itt {
    /// The times as those between the starts of two streams.
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
        let (mean, sd) = text.split_once(':').unwrap_or((text, "0"));
        Ok(Self {
            mean: parse_ms(mean)?,
            sd: parse_ms(sd)?,
        })
    }
}

impl fmt::Display for Itt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        to_ms(self.mean).fmt(f)?;
        match self.sd.is_zero() {
            true => Ok(()),
            false => write!(f, ":{}", to_ms(self.sd)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_itt_has_a_deviation_only_where_given() {
        let itt = |mean, sd| Itt {
            mean: Duration::from_micros(mean),
            sd: Duration::from_micros(sd),
        };
        for (text, times) in [("30:3", itt(30_000, 3_000)), ("100.1", itt(100_100, 0))] {
            assert_eq!(text.parse(), Ok(times));
            assert_eq!(times.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_itt_is_refused() {
        for mistake in ["", "x", "-1", "30:", ":3"] {
            assert!(mistake.parse::<Itt>().is_err(), "{mistake}");
        }
    }
}
