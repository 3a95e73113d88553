use std::time::Duration;

use pillion_trace::measure::{Group, Options};

use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::parse_s;

/// What is measured, and how it is put together.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Measures")]
pub struct Measured {
    /// Percentiles in the summary and the report, from 0 to 100 [default: 50,90,97,99,99.9]
    #[arg(
        long,
        value_name = "P,...",
        value_delimiter = ',',
        value_parser = parse_percentile
    )]
    pub percentiles: Option<Vec<f64>>,

    /// Measure connections together as well, by an end of theirs; may be repeated
    ///
    /// A condition is ADDRESS[/PREFIX], :PORT, :PORT-PORT or ADDRESS:PORT, and holds if either end
    /// is so; with `from:` before it only the end that opened the connection counts, with `to:`
    /// only the other.
    #[arg(long, value_name = "NAME=CONDITION,...")]
    group: Vec<Group>,

    /// The width of slices of time, in seconds
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_slice)]
    slice: Duration,

    /// What each connection is due, headers included, for Jain's fairness index: in bit/s, with k,
    /// M or G; for the connections of one group as GROUP=RATE, may be repeated
    #[arg(long, value_name = "[GROUP=]RATE", value_parser = parse_optimum)]
    optimum: Vec<Optimum>,
}

#[derive(Debug, Clone, PartialEq)]
struct Optimum {
    group: Option<String>,
    bit_per_s: f64,
}

/// The percentiles that are shown unless others are asked for.
const PERCENTILES: [f64; 5] = [50.0, 90.0, 97.0, 99.0, 99.9];

impl Measured {
    pub fn percentiles(self) -> Vec<f64> {
        self.percentiles.unwrap_or_else(|| PERCENTILES.to_vec())
    }

    pub fn options(&self) -> Result<Options, BadInput> {
        let names = || self.group.iter().map(|group| &group.name);
        for (place, name) in names().enumerate() {
            if names().take(place).any(|earlier| earlier == name) {
                let mistake = format!("two groups are called `{name}`; give each its own name");
                return Err(BadInput(mistake));
            }
        }
        let mut options = Options {
            slice_ns: i64::try_from(self.slice.as_nanos()).unwrap_or(i64::MAX),
            groups: self.group.clone(),
            ..Options::default()
        };
        for Optimum { group, bit_per_s } in &self.optimum {
            match group {
                None => options.optimum_bit_per_s = Some(*bit_per_s),
                Some(group) if names().any(|name| name == group) => {
                    options.optimum_of_group.push((group.clone(), *bit_per_s));
                }
                Some(group) => {
                    let mistake = format!("--optimum: no --group is called `{group}`");
                    return Err(BadInput(mistake));
                }
            }
        }
        Ok(options)
    }
}

fn parse_percentile(text: &str) -> Result<f64, String> {
    let percentile = text.parse().ok();
    let percentile = percentile.filter(|p: &f64| (0.0..=100.0).contains(p));
    percentile.ok_or_else(|| "expected percentiles from 0 to 100, as in 50,99.9".to_owned())
}

/// A shorter slice than a microsecond would hold no more than one packet.
fn parse_slice(text: &str) -> Result<Duration, BadInput> {
    let width = parse_s(text)?;
    if width < Duration::from_micros(1) {
        return Err("expected at least 0.000001 s".into());
    }
    Ok(width)
}

fn parse_optimum(text: &str) -> Result<Optimum, String> {
    let (group, rate) = match text.rsplit_once('=') {
        Some((group, rate)) => (Some(group.to_owned()), rate),
        None => (None, text),
    };
    let bit_per_s = parse_rate(rate)
        .ok_or_else(|| format!("`{rate}` is no rate in bit/s, such as 9600, 9.6k or 10M"))?;
    Ok(Optimum { group, bit_per_s })
}

fn parse_rate(text: &str) -> Option<f64> {
    let units = [('k', 1e3), ('M', 1e6), ('G', 1e9)];
    let unit = units.iter().find(|(letter, _)| text.ends_with(*letter));
    let (number, unit) = match unit {
        Some((letter, unit)) => (text.strip_suffix(*letter)?, *unit),
        None => (text, 1.0),
    };
    let rate = number.parse::<f64>().ok()? * unit;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_optimum_is_of_all_or_of_a_group() {
        let optimum = |group: Option<&str>, bit_per_s| Optimum {
            group: group.map(str::to_owned),
            bit_per_s,
        };
        assert_eq!(parse_optimum("9600"), Ok(optimum(None, 9600.0)));
        assert_eq!(
            parse_optimum("thin=9.6k"),
            Ok(optimum(Some("thin"), 9600.0))
        );
        for mistake in ["", "0", "-1k", "fast", "thin=", "1T", "inf"] {
            assert!(parse_optimum(mistake).is_err(), "{mistake}");
        }
    }
}
