//! The router's rate and queue in each direction.

use std::fmt;
use std::str::FromStr;

use pillion_cli::settings::document::known::flattened;
use pillion_cli::settings::{BadInput, text};
use serde::{Deserialize, Serialize};

use crate::path::LinkTrace;
use crate::settings::{Rate, numbers};

/// One direction of the router: a rate, and the queue in front of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bottleneck {
    /// Rate of IP packets with their Ethernet headers; `None`: no limit, and no packet is queued.
    pub rate: Option<Rate>,
    /// Recorded times at which packets are delivered, instead of a rate.
    #[serde(with = "text::option")]
    pub trace: Option<LinkTrace>,
    /// Shaper that enforces the rate.
    pub shaper: Shaper,
    /// Size of the token bucket in bytes, which leave back to back after a pause. The papers use
    /// 1520.
    #[serde(deserialize_with = "numbers::burst")]
    pub burst: u32,
    /// Queue discipline.
    pub queue: Discipline,
    /// Limit of the queue; `None`: the discipline's default.
    #[serde(with = "text::option")]
    pub limit: Option<Limit>,
    /// Further options of the discipline, in the syntax of `tc`.
    pub options: String,
}

impl Default for Bottleneck {
    /// Returns the papers' queue, without a rate.
    fn default() -> Self {
        Self {
            rate: None,
            trace: None,
            shaper: Shaper::default(),
            burst: 1520,
            queue: Discipline::default(),
            limit: None,
            options: String::new(),
        }
    }
}

impl Bottleneck {
    /// Returns the rate in bit/s, of a recorded link the mean one; `None`: no limit.
    #[must_use]
    pub fn mean_bps(&self) -> Option<u64> {
        let recorded = self.trace.as_ref().map(LinkTrace::mean_bps);
        recorded.or(self.rate.map(Rate::bps))
    }
}

/// Token bucket of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shaper {
    /// `htb` with one class, as in LCN 2015, section IV.B.
    #[default]
    Htb,
    /// `tbf`.
    Tbf,
}

/// Queue discipline of the kernel, by its name in `tc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// First in, first out; the limit counts packets.
    #[default]
    Pfifo,
    /// First in, first out; the limit counts bytes.
    Bfifo,
    /// Random early detection; the limit counts bytes.
    Red,
    /// Controlled delay (RFC 8289).
    Codel,
    /// Flow queueing with controlled delay (RFC 8290).
    FqCodel,
    /// Stochastic fairness queueing.
    Sfq,
    /// Fair queueing with pacing.
    Fq,
    /// Common applications kept enhanced (CAKE); it shapes by itself and replaces the shaper.
    Cake,
}

impl Discipline {
    /// Returns whether the limit counts bytes.
    #[must_use]
    pub fn counts_bytes(self) -> bool {
        matches!(self, Self::Bfifo | Self::Red | Self::Cake)
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Serde writes only the name.
        self.serialize(f)
    }
}

/// Limit of a queue: `63` packets, `46875 B`, or `0.5 BDP`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Packets, at least 1.
    Packets(u32),
    /// Bytes, at least 1.
    Bytes(u32),
    /// Multiple of the bandwidth-delay product, above 0. Disciplines that count packets take 1500 B
    /// for each.
    BandwidthDelayProducts(f64),
}

impl FromStr for Limit {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let limit = match text.trim().split_once(' ') {
            None => text.trim().parse().ok().map(Self::Packets),
            Some((bytes, "B")) => bytes.parse().ok().map(Self::Bytes),
            Some((products, "BDP")) => products.parse().ok().map(Self::BandwidthDelayProducts),
            Some(_) => None,
        };
        let is_valid = |limit: &Self| match limit {
            Self::Packets(count) | Self::Bytes(count) => *count > 0,
            Self::BandwidthDelayProducts(products) => (0.001..=10_000.0).contains(products),
        };
        let expected = "expected packets, as in 63, or \"46875 B\", or \"0.5 BDP\"";
        limit.filter(is_valid).ok_or_else(|| expected.into())
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(count) => count.fmt(f),
            Self::Bytes(count) => write!(f, "{count} B"),
            Self::BandwidthDelayProducts(products) => write!(f, "{products} BDP"),
        }
    }
}

/// Router in a file: its own keys apply to the direction toward the receiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, rename_all = "kebab-case")]
pub struct Bottlenecks {
    /// Direction toward the receiver.
    #[serde(flatten)]
    pub forward: Bottleneck,
    /// Direction toward the senders.
    pub back: Bottleneck,
}

flattened!(Bottlenecks);
