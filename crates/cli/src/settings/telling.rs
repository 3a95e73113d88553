//! What a pillion that stays tells of its work, beside its log.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::settings::{BadInput, text};

/// Options of the command line, and keys of the file under the same names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Service")]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Telling {
    /// Serve metrics over HTTP (OpenMetrics, at /metrics): at `unix:PATH`, or at an address of this
    /// host alone, as in 127.0.0.1:9273
    #[arg(long, value_name = "WHERE")]
    #[serde(with = "text::option")]
    pub metrics: Option<Endpoint>,

    /// Say the totals each so many seconds
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(deserialize_with = "text::some_positive")]
    pub totals_every: Option<u32>,

    /// Keep the account of what was done in FILE, as JSON: each ten seconds, on SIGUSR1, and at the
    /// end
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
}

impl Telling {
    /// Fills what is left open with what the other one says.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            metrics: self.metrics.or(other.metrics),
            totals_every: self.totals_every.or(other.totals_every),
            stats: self.stats.or(other.stats),
        }
    }

    /// The keys that another one has otherwise.
    pub fn differing(&self, other: &Self) -> impl Iterator<Item = &'static str> {
        let Self {
            metrics,
            totals_every,
            stats,
        } = other;
        let keys = [
            ("metrics", self.metrics != *metrics),
            ("totals-every", self.totals_every != *totals_every),
            ("stats", self.stats != *stats),
        ];
        keys.into_iter()
            .filter_map(|(key, differs)| differs.then_some(key))
    }
}

/// Where metrics are served: never to other hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A loopback address and a port.
    Loopback(SocketAddr),
}

const UNIX: &str = "unix:";

/// Bytes of a socket's path: 107 (unix(7)), less those by which the name of the new one that takes its
/// place is longer.
const LONGEST: usize = 107 - ".".len() - ".new".len();

impl FromStr for Endpoint {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        if let Some(path) = text.strip_prefix(UNIX).map(Path::new)
            && path.is_absolute()
        {
            if path.as_os_str().len() > LONGEST {
                return Err(BadInput(format!(
                    "expected a socket's path of at most {LONGEST} bytes"
                )));
            }
            return Ok(Self::Unix(path.to_owned()));
        }
        let address = text.parse::<SocketAddr>().ok();
        let address = address.filter(|it| it.ip().is_loopback() && it.port() > 0);
        address.map(Self::Loopback).ok_or_else(|| {
            BadInput::from(
                "expected \"unix:/PATH\", or an address of this host alone and a port, as in \
                 \"127.0.0.1:9273\" or \"[::1]:9273\"",
            )
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
            Self::Loopback(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named_as_in_the_file() {
        let keys = crate::settings::document::known::keys::<Telling>();
        let other = Telling {
            metrics: "127.0.0.1:1".parse().ok(),
            totals_every: Some(1),
            stats: Some("stats".into()),
        };
        let mut differing: Vec<_> = Telling::default().differing(&other).collect();
        differing.sort_unstable();
        let mut expected = keys.clone();
        expected.sort_unstable();
        assert_eq!(differing, expected);
        assert_eq!(other.differing(&other).count(), 0);
    }

    #[test]
    fn metrics_are_served_to_this_host_alone() {
        for endpoint in ["unix:/run/pillion/metrics", "127.0.0.1:9273", "[::1]:1"] {
            let found = endpoint.parse::<Endpoint>().unwrap();
            assert_eq!(found.to_string(), endpoint);
        }
        let path = |bytes: usize| format!("unix:/{}", "m".repeat(bytes - 1));
        assert!(path(102).parse::<Endpoint>().is_ok());
        for mistake in [
            &path(103),
            "",
            "unix:",
            "unix:here",
            "0.0.0.0:9273",
            "192.0.2.1:1",
            "127.0.0.1:0",
        ] {
            assert!(mistake.parse::<Endpoint>().is_err(), "{mistake}");
        }
    }
}
