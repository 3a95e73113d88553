//! Times on the command line: milliseconds or seconds, with a fraction where wanted.

use std::time::Duration;

use pillion_traffic::RampUp;

/// The mean inter-transmission time and its standard deviation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Itt {
    pub mean: Duration,
    pub sd: Duration,
}

impl Itt {
    /// The same as the time between the starts of two streams.
    pub fn ramp_up(self) -> RampUp {
        match self.sd.is_zero() {
            true => RampUp::Fixed(self.mean),
            false => RampUp::Normal {
                mean: self.mean,
                sd: self.sd,
            },
        }
    }
}

/// `30` or `30:3`, in milliseconds.
pub fn parse_itt(text: &str) -> Result<Itt, String> {
    let (mean, sd) = text.split_once(':').unwrap_or((text, "0"));
    Ok(Itt {
        mean: parse_ms(mean)?,
        sd: parse_ms(sd)?,
    })
}

pub fn parse_ms(text: &str) -> Result<Duration, String> {
    parse(text, 1e-3).ok_or_else(|| format!("`{text}` is no time in milliseconds"))
}

pub fn parse_s(text: &str) -> Result<Duration, String> {
    parse(text, 1.0).ok_or_else(|| format!("`{text}` is no time in seconds"))
}

fn parse(text: &str, unit: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse::<f64>().ok()? * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_itt_has_a_deviation_only_where_given() {
        let itt = |mean, sd| Itt {
            mean: Duration::from_millis(mean),
            sd: Duration::from_millis(sd),
        };
        assert_eq!(parse_itt("30:3"), Ok(itt(30, 3)));
        assert_eq!(parse_itt("100"), Ok(itt(100, 0)));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for mistake in ["", "x", "-1", "NaN", "inf", "30:", ":3"] {
            assert!(parse_itt(mistake).is_err(), "{mistake}");
        }
    }
}
