//! Numbers and addresses that files and options have in common, each with its range.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use pillion_cli::settings::host_name::{addresses, is_name};
use pillion_cli::settings::times::{parse_ms, to_ms};
use pillion_cli::settings::{BadInput, text};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::traffic::wire::MAX_SIZE;
use crate::traffic::{Distribution, RampUp};

pub(crate) use pillion_cli::settings::text::{positive, some_positive};

/// An address and a port, as in `192.0.2.1:7000` and `[2001:db8::1]:7000`, or a host's name and a
/// port: its first address then.
///
/// # Errors
/// [`BadInput`] that says what is expected, or why the name has no address.
pub fn parse_host_port(text: &str) -> Result<SocketAddr, BadInput> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let of_host = text.rsplit_once(':').filter(|(host, _)| is_name(host));
    let of_host = of_host.and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = of_host.ok_or(
        "expected an address or a host's name, and a port, as in 192.0.2.1:7000, \
         [2001:db8::1]:7000 or game.example.org:7000",
    )?;
    let found = addresses(host)?;
    let address = found.first().ok_or("the name has no address")?;
    Ok(SocketAddr::new(*address, port))
}

/// The mean inter-transmission time and its standard deviation; `30` or `30:3`, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Itt {
    /// The mean.
    pub mean: Duration,
    /// The standard deviation.
    pub sd: Duration,
}

impl Itt {
    /// The times as those between the starts of two streams.
    #[must_use]
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

impl From<Itt> for Distribution {
    fn from(itt: Itt) -> Self {
        let mean = to_ms(itt.mean);
        match to_ms(itt.sd) {
            0.0 => Self::constant(mean),
            sd => Self::Normal { mean, sd },
        }
    }
}

impl FromStr for Itt {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let (mean, sd) = text.split_once(':').unwrap_or((text, "0"));
        Ok(Self {
            mean: parse_ms(mean)?,
            sd: parse_ms(sd)?,
        })
    }
}

impl fmt::Display for Itt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        to_ms(self.mean).fmt(f)?;
        match self.sd.is_zero() {
            true => Ok(()),
            false => write!(f, ":{}", to_ms(self.sd)),
        }
    }
}

/// Bits per second; Mbit/s in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Rate {
    bps: u64,
}

impl Rate {
    /// In bits per second.
    #[must_use]
    pub fn bps(self) -> u64 {
        self.bps
    }
}

impl TryFrom<f64> for Rate {
    type Error = BadInput;

    fn try_from(mbit: f64) -> Result<Self, BadInput> {
        match (mbit * 1e6).round() {
            bits if (1.0..=1e12).contains(&bits) => Ok(Self { bps: bits as u64 }),
            _ => Err("expected Mbit/s above 0, as in 5".into()),
        }
    }
}

impl FromStr for Rate {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        text.parse().unwrap_or(f64::NAN).try_into()
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        text::serialize(&(self.bps as f64 / 1e6), to)
    }
}

// Whole numbers in ranges of their own.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_an_address_or_a_name_with_a_port() {
        for (text, address) in [
            ("192.0.2.1:7000", "192.0.2.1:7000"),
            ("[2001:db8::1]:7000", "[2001:db8::1]:7000"),
        ] {
            assert_eq!(parse_host_port(text).unwrap(), address.parse().unwrap());
        }
        let found = parse_host_port("localhost:7000").unwrap();
        assert!(found.ip().is_loopback() && found.port() == 7000, "{found}");
    }

    #[test]
    fn what_is_neither_is_refused_before_anybody_is_asked() {
        for text in [
            "",
            ":7000",
            "192.0.2:7000",
            "2001:db8::1:7000",
            "game",
            "game:x",
            "a b:1",
        ] {
            let told = parse_host_port(text).unwrap_err().0;
            assert!(told.starts_with("expected an address or"), "{text}: {told}");
        }
    }

    #[test]
    fn an_itt_has_a_deviation_only_where_given() {
        let itt = |mean, sd| Itt {
            mean: Duration::from_micros(mean),
            sd: Duration::from_micros(sd),
        };
        for (text, times) in [("30:3", itt(30_000, 3_000)), ("100.1", itt(100_100, 0))] {
            assert_eq!(text.parse(), Ok(times));
            assert_eq!(times.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_itt_is_refused() {
        for mistake in ["", "x", "-1", "30:", ":3"] {
            assert!(mistake.parse::<Itt>().is_err(), "{mistake}");
        }
    }
}
