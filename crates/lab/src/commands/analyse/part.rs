use std::time::UNIX_EPOCH;

use pillion_cli::settings::BadInput;
use pillion_trace::{Period, When};

/// Which part of the traces is looked at.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = "Which part")]
pub struct Part {
    /// What was sent then or later: seconds since the trace's first TCP packet, or a date
    ///
    /// Dates are as in 2026-11-21T22:49:11.5Z, in UTC. Of two traces, both times are by the clock
    /// of the sender's. All before is read as well, so that nothing is lost of what was in flight;
    /// latencies are of what was first sent from then on. Connections keep their numbers.
    #[arg(long, value_name = "TIME", value_parser = parse_when, allow_hyphen_values = true)]
    from: Option<When>,

    /// What was captured before; as --from
    #[arg(long, value_name = "TIME", value_parser = parse_when, allow_hyphen_values = true)]
    to: Option<When>,
}

impl Part {
    /// An error if the part ends before it begins, as far as that can be told without the traces.
    pub fn period(self) -> Result<Period, BadInput> {
        let is_empty = match (self.from, self.to) {
            (Some(When::After(from)), Some(When::After(to)))
            | (Some(When::At(from)), Some(When::At(to))) => to <= from,
            _ => false,
        };
        if is_empty {
            let why = "--to is not after --from, and nothing lies between them; give a later one";
            return Err(BadInput(why.to_owned()));
        }
        Ok(Period {
            from: self.from,
            until: self.to,
        })
    }
}

fn parse_when(text: &str) -> Result<When, String> {
    let ns = |seconds: f64| (seconds * 1e9).round() as i64;
    if let Some(seconds) = text
        .parse()
        .ok()
        .filter(|s: &f64| s.is_finite() && *s >= 0.0)
    {
        return Ok(When::After(ns(seconds)));
    }
    let date = humantime::parse_rfc3339_weak(text).ok();
    let since = date.and_then(|date| date.duration_since(UNIX_EPOCH).ok());
    let at = since.and_then(|since| i64::try_from(since.as_nanos()).ok());
    at.map(When::At).ok_or_else(|| {
        "expected seconds, as in 12.5, or a date, as in 2026-11-21T22:49:11Z".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_dates() {
        for (text, expected) in [
            ("12.5", When::After(12_500_000_000)),
            ("1970-01-01T00:01:00.25Z", When::At(60_250_000_000)),
            ("1970-01-02 00:00:00", When::At(86_400_000_000_000)),
        ] {
            assert_eq!(parse_when(text), Ok(expected), "{text}");
        }
        for mistake in [
            "",
            "-1",
            "NaN",
            "noon",
            "2026-11-21",
            "1969-12-31T00:00:00Z",
        ] {
            assert!(parse_when(mistake).is_err(), "{mistake}");
        }
    }
}
