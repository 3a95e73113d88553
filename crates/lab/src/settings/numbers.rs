//! Numbers and addresses of files and options, each with its range.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use pillion_cli::settings::host_name::{addresses, is_name};
use pillion_cli::settings::times::parse_rate;
use pillion_cli::settings::{BadInput, text};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::traffic::wire::MAX_SIZE;

/// Deserializes the number of SYN retransmissions, 1 to 127 (`MAX_TCP_SYNCNT` of Linux).
pub(crate) fn some_syn_retries<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u8>, D::Error> {
    let retries = u8::deserialize(from)
        .ok()
        .filter(|it| (1..=127).contains(it));
    let retries = retries.ok_or_else(|| D::Error::custom("expected a number from 1 to 127"));
    retries.map(Some)
}

pub(crate) use pillion_cli::settings::text::{positive, some_positive};

/// Parses an address and a port, as in `192.0.2.1:7000` and `[2001:db8::1]:7000`, or a host name
/// and a port. A host name stands for its first address.
///
/// # Errors
/// [`BadInput`] with the expected form, or if the name has no address.
pub fn parse_host_port(text: &str) -> Result<SocketAddr, BadInput> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let of_host = text.rsplit_once(':').filter(|(host, _)| is_name(host));
    let of_host = of_host.and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = of_host.ok_or(
        "expected an address or a host name, and a port, as in 192.0.2.1:7000, \
         [2001:db8::1]:7000 or game.example.org:7000",
    )?;
    let found = addresses(host)?;
    let address = found.first().ok_or("the name has no address")?;
    Ok(SocketAddr::new(*address, port))
}

/// Rate in bit/s; a number of Mbit/s in files, and text with a unit on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Rate {
    bps: u64,
}

impl Rate {
    /// Returns bit/s.
    #[must_use]
    pub fn bps(self) -> u64 {
        self.bps
    }

    /// Rounds to bit/s; `None` outside 1 bit/s to 1 Tbit/s.
    fn from_bps(bps: f64) -> Option<Self> {
        let bps = bps.round();
        let is_valid = (1.0..=1e12).contains(&bps);
        is_valid.then_some(Self { bps: bps as u64 })
    }
}

impl TryFrom<f64> for Rate {
    type Error = BadInput;

    fn try_from(mbit: f64) -> Result<Self, BadInput> {
        Self::from_bps(mbit * 1e6).ok_or_else(|| "expected Mbit/s above 0, as in 5".into())
    }
}

impl FromStr for Rate {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let bps = parse_rate(text)?;
        Self::from_bps(bps)
            .ok_or_else(|| BadInput(format!("invalid rate `{text}`: expected 1bit to 1000gbit")))
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        text::serialize(&(self.bps as f64 / 1e6), to)
    }
}

// Whole numbers with a range of their own.

/// Range of `repetitions`.
pub(crate) const REPETITIONS: RangeInclusive<u32> = 1..=10_000;

/// Deserializes the number of runs with different seeds.
pub(crate) fn some_repetitions<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<u32>, D::Error> {
    let number = u32::deserialize(from).ok();
    let number = number.filter(|number| REPETITIONS.contains(number));
    number
        .map(Some)
        .ok_or_else(|| D::Error::custom("expected a number from 1 to 10000"))
}

/// Deserializes the size of a message in bytes.
pub(crate) fn some_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let number = u32::deserialize(from).ok();
    let number = number.filter(|number| (1..=MAX_SIZE).contains(number));
    let expected = || D::Error::custom(format_args!("expected bytes, 1 to {MAX_SIZE}"));
    number.map(Some).ok_or_else(expected)
}

/// Deserializes a number from 0 to the maximum of C's `int`.
pub(crate) fn some_int<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let number = u32::deserialize(from)?;
    match i32::try_from(number) {
        Ok(_) => Ok(Some(number)),
        Err(_) => Err(D::Error::custom("expected a number from 0 to 2147483647")),
    }
}

/// Deserializes the size of a token bucket in bytes.
pub(crate) fn burst<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let number = u32::deserialize(from).ok();
    let number = number.filter(|number| (64..=1_000_000_000).contains(number));
    number.ok_or_else(|| D::Error::custom("expected bytes, 64 to 1000000000"))
}

/// Deserializes the tick rate of a kernel (`HZ`): one of the values that Linux can be built with.
pub(crate) fn ticks<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let number = u32::deserialize(from).ok();
    let number = number.filter(|number| [100, 250, 300, 1000].contains(number));
    number.ok_or_else(|| D::Error::custom("expected 100, 250, 300 or 1000"))
}

/// Deserializes the memory of a lab kernel in MiB.
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
    fn address_or_host_name_with_port_is_parsed() {
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
    fn invalid_host_port_is_rejected_without_lookup() {
        for text in [
            "",
            ":7000",
            "192.0.2:7000",
            "2001:db8::1:7000",
            "game",
            "game:x",
            "a b:1",
        ] {
            let error = parse_host_port(text).unwrap_err().0;
            assert!(
                error.starts_with("expected an address or"),
                "{text}: {error}"
            );
        }
    }
}
