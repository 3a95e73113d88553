use std::fmt;
use std::str::FromStr;

use pillion_cli::settings::BadInput;

/// How far a value may be from another: `15 %` of it, or a number in its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// In the value's unit.
    By(f64),
    /// A share of the value.
    Share(f64),
}

impl Tolerance {
    /// In the unit of a value.
    #[must_use]
    pub fn of(self, value: f64) -> f64 {
        match self {
            Self::By(by) => by,
            Self::Share(share) => (value * share).abs(),
        }
    }
}

impl FromStr for Tolerance {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let found = match text.strip_suffix('%') {
            Some(percent) => percent
                .trim()
                .parse()
                .ok()
                .map(|it: f64| Self::Share(it / 100.0)),
            None => text.trim().parse().ok().map(Self::By),
        };
        let is_sound = |it: &Self| match it {
            Self::By(by) | Self::Share(by) => *by > 0.0 && by.is_finite(),
        };
        found
            .filter(is_sound)
            .ok_or_else(|| "expected how far off it may be, as in \"15 %\" or 20".into())
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::By(by) => by.fmt(f),
            Self::Share(share) => write!(f, "{} %", share * 100.0),
        }
    }
}
