//! The router's rate and queue in each direction.

use std::fmt;
use std::str::FromStr;

use pillion_cli::settings::document::known::flattened;
use pillion_cli::settings::{BadInput, text};
use serde::{Deserialize, Serialize};

use crate::settings::{Rate, numbers};

/// A way of the router's: a rate, and the queue before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bottleneck {
    /// The rate of IP packets with their Ethernet headers; `None` sets none, and then nothing waits.
    pub rate: Option<Rate>,
    /// What keeps to the rate.
    pub shaper: Shaper,
    /// The bucket of tokens, in bytes: how much leaves at once after a pause. The papers have 1520.
    #[serde(deserialize_with = "numbers::burst")]
    pub burst: u32,
    /// What waits, and what is dropped.
    pub queue: Discipline,
    /// How much may wait; `None` as the discipline does by itself.
    #[serde(with = "text::option")]
    pub limit: Option<Limit>,
    /// More of the discipline's own options, as words of `tc`.
    pub options: String,
}

impl Default for Bottleneck {
    /// The papers' queue, without a rate.
    fn default() -> Self {
        Self {
            rate: None,
            shaper: Shaper::default(),
            burst: 1520,
            queue: Discipline::default(),
            limit: None,
            options: String::new(),
        }
    }
}

/// A token bucket of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shaper {
    /// `htb` with one class, as in LCN 2015, section IV.B.
    #[default]
    Htb,
    /// `tbf`.
    Tbf,
}

/// A queue discipline of the kernel, by the name that `tc` has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// First in, first out; its limit is one of packets.
    #[default]
    Pfifo,
    /// First in, first out; its limit is one of bytes.
    Bfifo,
    /// Random early detection; its limit is one of bytes.
    Red,
    /// Controlled delay (RFC 8289).
    Codel,
    /// Flow queueing with controlled delay (RFC 8290).
    FqCodel,
    /// Stochastic fairness queueing.
    Sfq,
    /// Fair queueing with pacing.
    Fq,
    /// Common applications kept enhanced; it shapes by itself, and takes the place of the shaper.
    Cake,
}

impl Discipline {
    /// Whether its limit is one of bytes.
    #[must_use]
    pub fn counts_bytes(self) -> bool {
        matches!(self, Self::Bfifo | Self::Red | Self::Cake)
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its name alone: serde knows it.
        self.serialize(f)
    }
}

/// How much may wait: `63` packets, `46875 B`, or `0.5 BDP`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Packets, at least 1.
    Packets(u32),
    /// Bytes, at least 1.
    Bytes(u32),
    /// Products of the bottleneck's rate and the path's round-trip time, above 0. Where the
    /// discipline counts packets, of 1500 B each.
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
        let is_sound = |limit: &Self| match limit {
            Self::Packets(count) | Self::Bytes(count) => *count > 0,
            Self::BandwidthDelayProducts(products) => (0.001..=10_000.0).contains(products),
        };
        let expected = "expected packets, as in 63, or \"46875 B\", or \"0.5 BDP\"";
        limit.filter(is_sound).ok_or_else(|| expected.into())
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

/// The router, as files describe it: its own keys are those of the way to the receiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, rename_all = "kebab-case")]
pub struct Bottlenecks {
    /// The way to the receiver.
    #[serde(flatten)]
    pub forward: Bottleneck,
    /// The way back to the senders.
    pub back: Bottleneck,
}

flattened!(Bottlenecks);
