//! What the values of a rule's conditions must be.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::IpNet;
use pillion_bundler::cgroup_id;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// A port from 1 to 65535, or a range of them, as in `8000-8100`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(pub RangeInclusive<u16>);

impl FromStr for Ports {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(Self(first..=last)),
            _ => Err("expected a port from 1 to 65535, or a range as in \"8000-8100\""),
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

/// A network, or an address as one of a single host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub IpNet);

impl FromStr for Peer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        let found = text.parse::<IpNet>().or_else(|_| address());
        found
            .map(Self)
            .map_err(|_| "expected an address or a network, as in 192.0.2.0/24 or 2001:db8::/32")
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A cgroup of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cgroup {
    path: String,
    /// The cgroup's [`cgroup_id`].
    pub id: u64,
}

impl TryFrom<String> for Cgroup {
    type Error = String;

    fn try_from(path: String) -> Result<Self, String> {
        let id = cgroup_id(&path).map_err(|error| {
            format!(
                "{error}; /proc/PID/cgroup names that of a process, on the line that begins with \
                 0::"
            )
        })?;
        Ok(Self { path, id })
    }
}

impl From<Cgroup> for String {
    fn from(cgroup: Cgroup) -> Self {
        cgroup.path
    }
}

/// A user's numeric id: the last one stands for any.
pub(super) fn uid<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let id = u32::deserialize(from).ok().filter(|id| *id != u32::MAX);
    let expected = "expected a user's numeric id, as in 1000";
    id.map(Some).ok_or_else(|| D::Error::custom(expected))
}
