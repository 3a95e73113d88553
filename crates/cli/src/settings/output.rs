//! Output of a running `pillion attach`: log, metrics and the file of totals.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::log::LogLevel;
use crate::settings::{BadInput, text};

/// Output options of the command line, and keys of the rules file under the same names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Service")]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct OutputConfig {
    /// Lowest severity to log [default: info]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub log_level: Option<LogLevel>,

    /// Log the totals this often, as in 1h
    #[arg(long, value_name = "DURATION", value_parser = log_interval::parse)]
    #[serde(with = "log_interval")]
    pub log_totals: Option<Duration>,

    /// Serve metrics over HTTP (OpenMetrics, at /metrics) at `unix:PATH`, or at a loopback address,
    /// as in 127.0.0.1:29473
    #[arg(long, value_name = "WHERE")]
    #[serde(with = "text::option")]
    pub metrics: Option<Endpoint>,

    /// Write the totals to FILE as JSON: every ten seconds, on SIGUSR1 and at the end
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
}

impl OutputConfig {
    /// Takes unset values from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            log_level: self.log_level.or(other.log_level),
            log_totals: self.log_totals.or(other.log_totals),
            metrics: self.metrics.or(other.metrics),
            stats: self.stats.or(other.stats),
        }
    }

    /// Returns the keys whose values differ in `other`.
    pub fn changed_keys(&self, other: &Self) -> impl Iterator<Item = &'static str> {
        let Self {
            log_level,
            log_totals,
            metrics,
            stats,
        } = other;
        let keys = [
            ("log-level", self.log_level != *log_level),
            ("log-totals", self.log_totals != *log_totals),
            ("metrics", self.metrics != *metrics),
            ("stats", self.stats != *stats),
        ];
        keys.into_iter()
            .filter_map(|(key, differs)| differs.then_some(key))
    }
}

/// Interval of totals in the log: a duration of at least one second.
mod log_interval {
    use std::time::Duration;

    use pillion_bpf::units;
    use serde::Deserializer;

    pub(super) use units::serialize_duration as serialize;

    pub(super) fn parse(text: &str) -> Result<Duration, String> {
        match units::parse_duration(text)? {
            interval if interval >= Duration::from_secs(1) => Ok(interval),
            _ => Err("expected an interval of at least 1s, as in 1h".to_owned()),
        }
    }

    pub(super) fn deserialize<'de, D>(from: D) -> Result<Option<Duration>, D::Error>
    where
        D: Deserializer<'de>,
    {
        units::deserialize(from, parse).map(Some)
    }
}

/// Address of the metrics server, which other hosts cannot reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket in the file system.
    Unix(PathBuf),
    /// A loopback address and a port.
    Loopback(SocketAddr),
}

const UNIX: &str = "unix:";

/// Maximum bytes of a socket's path: 107 (unix(7)), minus the bytes of its temporary name
/// (`.NAME.new`).
const MAX_PATH: usize = 107 - ".".len() - ".new".len();

impl FromStr for Endpoint {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        if let Some(path) = text.strip_prefix(UNIX).map(Path::new)
            && path.is_absolute()
        {
            if path.as_os_str().len() > MAX_PATH {
                return Err(BadInput(format!(
                    "expected a socket path of at most {MAX_PATH} bytes"
                )));
            }
            return Ok(Self::Unix(path.to_owned()));
        }
        let address = text.parse::<SocketAddr>().ok();
        let address = address.filter(|it| it.ip().is_loopback() && it.port() > 0);
        address.map(Self::Loopback).ok_or_else(|| {
            BadInput::from(
                "expected \"unix:/PATH\", or a loopback address and a port, as in \
                 \"127.0.0.1:29473\" or \"[::1]:29473\"",
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
    fn changed_keys_have_the_names_of_the_file() {
        let keys = crate::settings::document::known::keys::<OutputConfig>();
        let other = OutputConfig {
            log_level: Some(LogLevel::Debug),
            log_totals: Some(Duration::from_secs(1)),
            metrics: "127.0.0.1:1".parse().ok(),
            stats: Some("stats".into()),
        };
        let mut changed: Vec<_> = OutputConfig::default().changed_keys(&other).collect();
        changed.sort_unstable();
        let mut expected = keys.clone();
        expected.sort_unstable();
        assert_eq!(changed, expected);
        assert_eq!(other.changed_keys(&other).count(), 0);
    }

    #[test]
    fn metrics_endpoint_is_reachable_from_this_host_only() {
        for endpoint in ["unix:/run/pillion/metrics", "127.0.0.1:29473", "[::1]:1"] {
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
            "0.0.0.0:29473",
            "192.0.2.1:1",
            "127.0.0.1:0",
        ] {
            assert!(mistake.parse::<Endpoint>().is_err(), "{mistake}");
        }
    }
}
