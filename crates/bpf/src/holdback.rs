use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::contract::types;
use crate::units::parse_percent;

/// On which side of a comparison a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// The connection's segments are bundled.
    Bundled,
    /// Bundles are suppressed.
    Plain,
}

/// Share of a rule's connections that stay plain, for comparison: 1 % to 50 %, or none.
///
/// Its text is a percentage, as in `5%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holdback {
    ppm: u32,
}

impl Holdback {
    /// Connections are hashed to this many buckets. All connections of a bucket are bundled, or none.
    pub const BUCKETS: u64 = types::holdback::HOLDBACK_ALL.0 as u64;

    /// Every connection: bundling is withdrawn from the rule.
    pub const ALL: Self = Self { ppm: 1_000_000 };

    /// Returns true if no connection is held back.
    #[must_use]
    pub fn is_none(self) -> bool {
        self.ppm == 0
    }

    /// In parts per million.
    #[must_use]
    pub fn ppm(self) -> u32 {
        self.ppm
    }

    /// Returns the share with this number of parts per million.
    #[must_use]
    pub fn from_ppm(ppm: u32) -> Self {
        Self { ppm }
    }

    /// Returns the bucket of a hash, below [`Holdback::BUCKETS`].
    #[must_use]
    pub fn bucket(unit: u64) -> u64 {
        unit >> (u64::BITS - types::holdback::HOLDBACK_BITS.0)
    }

    /// Returns the arm of a hash. As `arm_of()` in `bpf/bundler/sampling/assignment.h`.
    #[must_use]
    pub fn arm_of(self, unit: u64) -> Arm {
        match Self::bucket(unit) < self.buckets().into() {
            true => Arm::Plain,
            false => Arm::Bundled,
        }
    }

    /// Number of plain buckets.
    pub(crate) fn buckets(self) -> u16 {
        let scaled = u64::from(self.ppm) * Self::BUCKETS;
        (scaled as f64 / 1e6).round() as u16
    }
}

impl FromStr for Holdback {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ppm = (parse_percent(text)? * 1e4).round() as u32;
        match ppm {
            0 | 10_000..=500_000 => Ok(Self { ppm }),
            _ => Err(format!(
                "invalid share `{text}`: expected 1% to 50%, so that both groups can be compared, \
                 or 0% for no holdback"
            )),
        }
    }
}

impl fmt::Display for Holdback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.ppm) / 1e4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holdback_text_is_none_or_1_to_50_percent() {
        for (text, buckets) in [("0%", 0), ("1%", 41), ("5%", 205), ("50%", 2048)] {
            let holdback: Holdback = text.parse().unwrap();
            assert_eq!(
                (holdback.buckets(), holdback.to_string()),
                (buckets, text.into())
            );
        }
        for text in ["5", "0.9%", "50.1%", "-1%"] {
            text.parse::<Holdback>().unwrap_err();
        }
        assert_eq!(u64::from(Holdback::ALL.buckets()), Holdback::BUCKETS);
    }
}
