//! Whole numbers in ranges of their own.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// Reads a whole number from 1 on.
pub fn positive<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + PartialEq + From<u8>,
    D: Deserializer<'de>,
{
    let number = T::deserialize(from)?;
    match number == T::from(0) {
        true => Err(D::Error::custom("expected a whole number from 1 on")),
        false => Ok(number),
    }
}

/// Reads a whole number from 1 on, where there may be none.
pub fn some_positive<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de> + PartialEq + From<u8>,
    D: Deserializer<'de>,
{
    positive(from).map(Some)
}
