//! Whole numbers in ranges of their own.

use std::ops::RangeInclusive;

pub(crate) use pillion_cli::settings::text::{positive, some_positive};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::traffic::wire::MAX_SIZE;

/// How often runs may be repeated.
pub(crate) const REPETITIONS: RangeInclusive<u32> = 1..=10_000;

/// Reads how often runs are repeated, each time with another seed.
pub(crate) fn some_repetitions<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<u32>, D::Error> {
    let number = u32::deserialize(from).ok();
    let number = number.filter(|number| REPETITIONS.contains(number));
    number
        .map(Some)
        .ok_or_else(|| D::Error::custom("expected a number from 1 to 10000"))
}

/// Reads the size of a message in bytes.
pub(crate) fn some_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let number = u32::deserialize(from).ok();
    let number = number.filter(|number| (1..=MAX_SIZE).contains(number));
    let expected = || D::Error::custom(format_args!("expected bytes, 1 to {MAX_SIZE}"));
    number.map(Some).ok_or_else(expected)
}

/// Reads a number from 0 to what C's `int` has room for.
pub(crate) fn some_int<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let number = u32::deserialize(from)?;
    match i32::try_from(number) {
        Ok(_) => Ok(Some(number)),
        Err(_) => Err(D::Error::custom("expected a number from 0 to 2147483647")),
    }
}

/// Reads the bytes of a bucket of tokens.
pub(crate) fn burst<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let number = u32::deserialize(from).ok();
    let number = number.filter(|number| (64..=1_000_000_000).contains(number));
    number.ok_or_else(|| D::Error::custom("expected bytes, 64 to 1000000000"))
}

/// Reads how often a kernel's clock ticks, of what Linux can be built with.
pub(crate) fn ticks<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let number = u32::deserialize(from).ok();
    let number = number.filter(|number| [100, 250, 300, 1000].contains(number));
    number.ok_or_else(|| D::Error::custom("expected 100, 250, 300 or 1000"))
}

/// Reads the memory of a lab kernel in MiB.
pub(crate) fn some_memory<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let number = u32::deserialize(from).ok();
    let number = number.filter(|number| (64..=65_536).contains(number));
    let expected = || D::Error::custom("expected MiB, 64 to 65536");
    number.map(Some).ok_or_else(expected)
}
