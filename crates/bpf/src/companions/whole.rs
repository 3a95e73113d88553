//! Whole milliseconds, as many as fit into an `int`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

const EXPECTED: &str = "expected whole milliseconds from 1 to 2147483647";

pub(super) fn parse(text: &str) -> Result<Duration, &'static str> {
    text.parse().map_or(Err(EXPECTED), of)
}

fn of(ms: f64) -> Result<Duration, &'static str> {
    match ms.fract() == 0.0 && (1.0..=f64::from(i32::MAX)).contains(&ms) {
        true => Ok(Duration::from_millis(ms as u64)),
        false => Err(EXPECTED),
    }
}

pub(super) fn deserialize<'de, D>(from: D) -> Result<Option<Duration>, D::Error>
where
    D: Deserializer<'de>,
{
    let time = of(f64::deserialize(from)?).map_err(D::Error::custom)?;
    Ok(Some(time))
}

pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_millis() as u64).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_milliseconds() {
        let longest = Duration::from_millis(i32::MAX as u64);
        assert_eq!(parse("2147483647"), Ok(longest));
        for mistake in ["", "0", "-1", "1.5", "2147483648", "soon"] {
            assert!(parse(mistake).is_err(), "{mistake}");
        }
    }
}
