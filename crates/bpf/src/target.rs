use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The share of segments that may be lost and not repaired, from 0 to 100 per cent; in words the
/// per cent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Target {
    ppm: u32,
}

/// What is no [`Target`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected per cent, 0 to 100")]
pub struct TargetError;

impl Target {
    /// In parts per million.
    #[must_use]
    pub fn ppm(self) -> u32 {
        self.ppm
    }
}

impl Default for Target {
    /// One in a thousand.
    fn default() -> Self {
        Self { ppm: 1000 }
    }
}

impl TryFrom<f64> for Target {
    type Error = TargetError;

    fn try_from(percent: f64) -> Result<Self, TargetError> {
        match (0.0..=100.0).contains(&percent) {
            true => Ok(Self {
                ppm: (percent * 1e4).round() as u32,
            }),
            false => Err(TargetError),
        }
    }
}

impl From<Target> for f64 {
    fn from(target: Target) -> Self {
        Self::from(target.ppm) / 1e4
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let percent: f64 = text.parse().map_err(|_| TargetError)?;
        percent.try_into()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f64::from(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_per_cent() {
        assert_eq!("0.5".parse().map(Target::ppm), Ok(5_000));
        assert_eq!("100".parse().map(Target::ppm), Ok(1_000_000));
        assert_eq!(Target::default().to_string(), "0.1");
        for mistake in ["", "-1", "100.1", "NaN", "x"] {
            assert_eq!(mistake.parse::<Target>(), Err(TargetError), "{mistake}");
        }
    }
}
