//! How much may ride along: what is beyond it would be a wish that nothing fulfils.

use std::mem::offset_of;

use serde::{Deserialize, Deserializer, de::Error};

use crate::contract::types;

/// Bytes of a connection's payload that the programs keep: the first field has them. A bundle has
/// no room for more previous segments, even of one byte each, beside a new byte.
const MOST_PACKETS: u32 = offset_of!(types::flow, counters) as u32 - 1;

/// The number of previous segments that a command line says.
///
/// # Errors
/// What was expected, where no bundle can have so many.
pub fn parse_packets(text: &str) -> Result<u32, String> {
    text.parse().map_or_else(|_| Err(expected()), of_packets)
}

fn of_packets(number: u32) -> Result<u32, String> {
    match number <= MOST_PACKETS {
        true => Ok(number),
        false => Err(expected()),
    }
}

fn expected() -> String {
    format!("expected segments, 1 to {MOST_PACKETS}, or 0 for no limit")
}

pub(crate) fn packets<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let number = u32::deserialize(from).map_err(|_| D::Error::custom(expected()))?;
    of_packets(number).map(Some).map_err(D::Error::custom)
}

const EXPECTED_BYTES: &str = "expected bytes, 2 (a new one, and one that rides along) or more, or 0: \
                              the MSS alone limits";

/// The bytes of a segment with its bundle that a command line says.
///
/// # Errors
/// What was expected, where nothing could ride along.
pub fn parse_bytes(text: &str) -> Result<u32, &'static str> {
    text.parse().map_or(Err(EXPECTED_BYTES), of_bytes)
}

fn of_bytes(number: u32) -> Result<u32, &'static str> {
    match number == 1 {
        true => Err(EXPECTED_BYTES),
        false => Ok(number),
    }
}

pub(crate) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let number = u32::deserialize(from).map_err(|_| D::Error::custom(EXPECTED_BYTES))?;
    of_bytes(number).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_bundle_can_have_is_refused() {
        assert_eq!(parse_packets("0"), Ok(0));
        assert_eq!(parse_packets("2047"), Ok(2047));
        for mistake in ["", "-1", "2048", "4294967295", "4294967296"] {
            let said = parse_packets(mistake).unwrap_err();
            assert!(said.contains("1 to 2047"), "{mistake}: {said}");
        }
        assert_eq!(parse_bytes("2"), Ok(2));
        for mistake in ["1", "-1", "x"] {
            assert_eq!(parse_bytes(mistake), Err(EXPECTED_BYTES), "{mistake}");
        }
    }
}
