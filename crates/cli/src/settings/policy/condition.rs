//! What the values of a rule's conditions must be.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::IpNet;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::settings::BadInput;
use crate::settings::host_name::{addresses, is_name};

/// A port from 1 to 65535, or a range of them, as in `8000-8100`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(pub RangeInclusive<u16>);

impl FromStr for Ports {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(Self(first..=last)),
            _ => Err("expected a port from 1 to 65535, or a range as in \"8000-8100\"".into()),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0.start(), self.0.end());
        match first == last {
            true => first.fmt(f),
            false => write!(f, "{first}-{last}"),
        }
    }
}

/// A network, an address as one of a single host, or a host's name: the addresses that it has when it
/// is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    text: String,
    /// One network; of a name, a host for each of its addresses.
    pub nets: Vec<IpNet>,
}

impl FromStr for Peer {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        let nets = match text.parse::<IpNet>().or_else(|_| address()) {
            Ok(net) => vec![net],
            Err(_) => resolve(text)?,
        };
        Ok(Self {
            text: text.to_owned(),
            nets,
        })
    }
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self {
            text: address.to_string(),
            nets: vec![address.into()],
        }
    }
}

/// The addresses of a host by its name.
fn resolve(name: &str) -> Result<Vec<IpNet>, BadInput> {
    if !is_name(name) {
        let expected = "expected an address, a network or a host's name, as in 192.0.2.0/24, \
                        2001:db8::/32 or game.example.org";
        return Err(expected.into());
    }
    let mut nets: Vec<_> = addresses(name)?.into_iter().map(IpNet::from).collect();
    nets.sort();
    nets.dedup();
    Ok(nets)
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// A user's numeric id: the last one stands for any.
pub(super) fn uid<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let id = u32::deserialize(from).ok().filter(|id| *id != u32::MAX);
    let expected = "expected a user's numeric id, as in 1000";
    id.map(Some).ok_or_else(|| D::Error::custom(expected))
}
