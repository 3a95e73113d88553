use clap::Args;
use serde::{Deserialize, Deserializer, Serialize};

use crate::contract::types;
use crate::units::{self, parse_rate};

/// Caps on the redundancy of all connections of one pillion together, and keys of files under the same
/// names. The tokens of one second without use remain (`bpf/bundler/policy/token_bucket.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RedundancyCaps {
    /// Maximum redundant payload of all connections together, as in 8mbit; further segments leave plain
    /// [default: no limit]
    // Bytes per second.
    #[arg(long, value_name = "RATE", value_parser = parse_redundancy_rate)]
    #[serde(deserialize_with = "redundancy_rate")]
    pub max_redundancy_rate: Option<u64>,

    /// Maximum copies of all connections together, per second [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse_copy_rate)]
    #[serde(deserialize_with = "copy_rate")]
    pub max_copy_rate: Option<u64>,
}

impl RedundancyCaps {
    /// Takes unset values from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            max_redundancy_rate: self.max_redundancy_rate.or(other.max_redundancy_rate),
            max_copy_rate: self.max_copy_rate.or(other.max_copy_rate),
        }
    }
}

impl From<RedundancyCaps> for types::caps {
    fn from(caps: RedundancyCaps) -> Self {
        Self {
            redundant_bytes_per_s: caps.max_redundancy_rate.unwrap_or(0),
            copies_per_s: caps.max_copy_rate.unwrap_or(0),
        }
    }
}

/// Parses a rate from 8bit to 1000gbit, and returns bytes per second.
fn parse_redundancy_rate(text: &str) -> Result<u64, String> {
    let bytes_per_s = (parse_rate(text)? / 8.0).floor();
    match (1.0..=125e9).contains(&bytes_per_s) {
        true => Ok(bytes_per_s as u64),
        false => Err(format!("invalid rate `{text}`: expected 8bit to 1000gbit")),
    }
}

fn redundancy_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    units::deserialize(from, parse_redundancy_rate).map(Some)
}

/// Parses a number of copies per second, 1 to 1,000,000,000.
fn parse_copy_rate(text: &str) -> Result<u64, String> {
    let rate = text.parse().ok();
    rate.filter(|rate| (1..=1_000_000_000).contains(rate))
        .ok_or_else(|| format!("invalid copy rate `{text}`: expected 1 to 1000000000 per second"))
}

fn copy_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    units::deserialize(from, parse_copy_rate).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_caps_are_positive_and_bounded() {
        assert_eq!(parse_redundancy_rate("8mbit"), Ok(1_000_000));
        assert_eq!(parse_redundancy_rate("8bit"), Ok(1));
        for mistake in ["0", "0mbit", "7bit", "1001gbit", "1MB", "1000"] {
            assert!(parse_redundancy_rate(mistake).is_err(), "{mistake}");
        }
        assert_eq!(parse_copy_rate("1"), Ok(1));
        for mistake in ["0", "-1", "1.5", "many", "1000000001"] {
            assert!(parse_copy_rate(mistake).is_err(), "{mistake}");
        }
    }
}
