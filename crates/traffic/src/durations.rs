//! Durations in configuration files: plain numbers whose unit stands in the field's name.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error};

fn read<'de, D: Deserializer<'de>>(from: D, units_per_second: f64) -> Result<Duration, D::Error> {
    let number = f64::deserialize(from)?;
    Duration::try_from_secs_f64(number / units_per_second)
        .map_err(|error| D::Error::custom(format!("{number} is no duration: {error}")))
}

/// `#[serde(with = "seconds")]`
pub(crate) mod seconds {
    use super::*;

    pub(crate) fn serialize<S: serde::Serializer>(
        duration: &Duration,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_f64(duration.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        read(from, 1.0)
    }
}

/// `#[serde(with = "milliseconds")]`
pub(crate) mod milliseconds {
    use super::*;

    pub(crate) fn serialize<S: serde::Serializer>(
        duration: &Duration,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_f64(duration.as_secs_f64() * 1e3)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        read(from, 1e3)
    }
}

/// `#[serde(with = "optional_milliseconds", default)]`
pub(crate) mod optional_milliseconds {
    use super::*;

    pub(crate) fn serialize<S: serde::Serializer>(
        duration: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => to.serialize_some(&(duration.as_secs_f64() * 1e3)),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        #[derive(Deserialize)]
        struct Milliseconds(#[serde(with = "super::milliseconds")] Duration);
        Ok(Option::<Milliseconds>::deserialize(from)?.map(|Milliseconds(duration)| duration))
    }
}
