//! Milliseconds within what the kernel takes for its shortest and longest times.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::Companions;

pub(super) fn parse(text: &str) -> Result<Duration, String> {
    text.parse().map_or_else(|_| Err(expected()), of)
}

fn of(ms: f64) -> Result<Duration, String> {
    let time = Duration::try_from_secs_f64(ms / 1e3).ok();
    let fits = |time: &Duration| (Companions::shortest()..=Companions::LONGEST).contains(time);
    time.filter(fits).ok_or_else(expected)
}

fn expected() -> String {
    format!(
        "expected milliseconds from {} (two ticks of this kernel's clock) to {}",
        Companions::shortest().as_secs_f64() * 1e3,
        Companions::LONGEST.as_millis()
    )
}

pub(super) fn deserialize<'de, D>(from: D) -> Result<Option<Duration>, D::Error>
where
    D: Deserializer<'de>,
{
    let time = of(f64::deserialize(from)?).map_err(D::Error::custom)?;
    Ok(Some(time))
}

pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    let ms = time.map(|time| time.as_nanos() as f64 / 1e6);
    ms.serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_within_the_kernels_bounds() {
        assert_eq!(parse("50.5"), Ok(Duration::from_micros(50_500)));
        assert_eq!(parse("200"), Ok(Duration::from_millis(200)));
        for mistake in [
            "", "0", "0.5", "200.1", "-40", "NaN", "inf", "1e300", "40ms",
        ] {
            let said = parse(mistake).unwrap_err();
            assert!(said.ends_with(" to 200"), "{mistake}: {said}");
        }
    }
}
