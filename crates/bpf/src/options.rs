use std::fmt;
use std::mem::offset_of;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::ThinTest;
use crate::contract::types;

/// What follows from losses that bundles hid from congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reaction {
    /// The kernel reduces the congestion window, at most once a window of data (LCN 2015, section
    /// III.B.1)
    #[default]
    Cwr,
    /// The congestion window is reduced, but only if the stream sends more, redundant bytes
    /// included, than its fair share (RFC 4828)
    TfrcSp,
    /// Nothing, for experiments (with --unsafe): the stream takes no part in congestion control
    None,
}

/// How an ACK tells that a bundle hid a loss (LCN 2015, section III.B.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossRule {
    /// By the receiver's reports of duplicates (DSACK, RFC 2883); nothing is bundled once its ACKs
    /// of bundles show that it makes none
    #[default]
    Auto,
    /// Redundant bytes that the receiver does not report as duplicates were lost.
    #[value(skip)]
    #[serde(skip_deserializing)]
    Dsack,
    /// An ACK of several segments means loss: the published rule, which takes delayed ACKs for
    /// losses
    Ack,
    /// The receiver reports no duplicates: no loss can be found, and nothing is bundled.
    #[value(skip)]
    #[serde(skip_deserializing)]
    None,
}

/// Of the RTTs that the kernel keeps, the one that DPIFL takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThinRtt {
    /// The connection's minimum, as published
    #[default]
    Min,
    /// The connection's smoothed RTT, which grows under loss and queueing
    Smoothed,
}

/// How many previous segments a bundle takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// As many as --max-packets says
    #[default]
    Fixed,
    /// The fewest that the runs of losses seen demand, up to --max-packets and 8
    Adaptive,
}

/// The heading of options that experiments want, and operators do not; short help leaves these out.
pub const EXPERIMENTAL: &str = "Experimental";

/// How a connection is bundled: options of the command line, and keys of files under the same
/// names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Bundling")]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// Bundle while the stream is thin: `dpifl[:MS]`, packets in flight x MS < minimum RTT;
    /// `spifl:N`, at most N packets in flight; `always`, for experiments
    #[arg(long, value_name = "TEST", default_value_t)]
    pub thin: ThinTest,

    /// The RTT that dpifl takes
    #[arg(long, value_name = "RTT", value_enum, default_value_t, help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub rtt: ThinRtt,

    /// Bundle only after the connection's first retransmission
    #[arg(long, help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub wait_for_loss: bool,

    /// How many previous segments ride along
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t)]
    pub level: Level,

    /// With --level adaptive: the per cent of segments that may be lost and not repaired
    /// [default: 0.1]
    #[arg(long, value_name = "PERCENT", help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub target: Option<Target>,

    /// Previous segments that ride along at most; 0 for no limit [default: 1, as LCN 2015, section
    /// VI, recommends; 0 with --level adaptive]
    #[arg(long, value_name = "N", value_parser = parse_packets)]
    #[serde(deserialize_with = "packets")]
    pub max_packets: Option<u32>,

    /// Bytes of payload in a segment with its bundle at most; 0: the MSS alone limits
    #[arg(long, value_name = "BYTES", default_value_t, value_parser = parse_bytes)]
    #[serde(deserialize_with = "bytes")]
    pub max_bytes: u32,

    /// What follows from a loss that a bundle hid
    #[arg(long, value_name = "REACTION", value_enum, default_value_t)]
    pub reaction: Reaction,

    /// How hidden losses are found
    #[arg(long, value_name = "RULE", value_enum, default_value_t, help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub loss_rule: LossRule,

    /// Bundle even where the peer does not offer SACK: losses can then only be guessed, as by
    /// --loss-rule ack, and late duplicates count as duplicate ACKs
    #[arg(long, help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub without_sack: bool,

    /// Bundle into retransmissions as well: that of the first unacknowledged segment takes along
    /// whole segments that follow it, within the same limits (LCN 2008, section III)
    #[arg(long, help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub retransmissions: bool,

    /// Bundle as the papers do, without the guards that pillion adds: bundles of any size leave
    /// without a proof that the path takes them. For experiments: a path that drops large packets can
    /// stop such a stream. The other options hold as well
    #[arg(long, help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub published: bool,
}

impl From<Options> for types::options {
    fn from(options: Options) -> Self {
        let mut raw = Self {
            max_packets: options.max_packets.unwrap_or(match options.level {
                Level::Fixed => 1,
                Level::Adaptive => 0,
            }),
            max_bytes: options.max_bytes,
            wait_for_loss: options.wait_for_loss.into(),
            without_sack: options.without_sack.into(),
            retransmissions: options.retransmissions.into(),
            published: options.published.into(),
            ..Self::default()
        };
        raw.thin_rtt = match options.rtt {
            ThinRtt::Min => types::thin_rtt::THIN_RTT_MIN,
            ThinRtt::Smoothed => types::thin_rtt::THIN_RTT_SMOOTHED,
        };
        raw.level = match options.level {
            Level::Fixed => types::level::LEVEL_FIXED,
            Level::Adaptive => {
                raw.target_ppm = options.target.unwrap_or_default().ppm();
                types::level::LEVEL_ADAPTIVE
            }
        };
        raw.reaction = match options.reaction {
            Reaction::Cwr => types::reaction::REACT_CWR,
            Reaction::TfrcSp => types::reaction::REACT_TFRC_SP,
            Reaction::None => types::reaction::REACT_NONE,
        };
        raw.loss_rule = match options.loss_rule {
            LossRule::Auto => types::loss_rule::LOSS_RULE_LEARNING,
            LossRule::Dsack => types::loss_rule::LOSS_RULE_DSACK,
            LossRule::Ack => types::loss_rule::LOSS_RULE_ACK,
            LossRule::None => types::loss_rule::LOSS_RULE_NONE,
        };
        raw.thin_test = match options.thin {
            ThinTest::Dpifl { itt_min } => {
                raw.itt_min_us = u32::try_from(itt_min.as_micros()).unwrap_or(u32::MAX);
                types::thin_test::THIN_DPIFL
            }
            ThinTest::Spifl { limit } => {
                raw.spifl = limit;
                types::thin_test::THIN_SPIFL
            }
            ThinTest::Always => types::thin_test::THIN_ALWAYS,
        };
        raw
    }
}

/// The share of segments that may be lost and not repaired, from 0 to 100 per cent; in words the
/// per cent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Target {
    ppm: u32,
}

/// What is no [`Target`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected per cent, 0 to 100")]
pub struct TargetError;

impl Target {
    /// In parts per million.
    #[must_use]
    pub fn ppm(self) -> u32 {
        self.ppm
    }
}

impl Default for Target {
    /// One in a thousand.
    fn default() -> Self {
        Self { ppm: 1000 }
    }
}

impl TryFrom<f64> for Target {
    type Error = TargetError;

    fn try_from(percent: f64) -> Result<Self, TargetError> {
        match (0.0..=100.0).contains(&percent) {
            true => Ok(Self {
                ppm: (percent * 1e4).round() as u32,
            }),
            false => Err(TargetError),
        }
    }
}

impl From<Target> for f64 {
    fn from(target: Target) -> Self {
        Self::from(target.ppm) / 1e4
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let percent: f64 = text.parse().map_err(|_| TargetError)?;
        percent.try_into()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f64::from(*self).fmt(f)
    }
}

/// Bytes of a connection's payload that the programs keep: the first field has them. A bundle has
/// no room for more previous segments, even of one byte each, beside a new byte.
const MOST_PACKETS: u32 = offset_of!(types::flow, counters) as u32 - 1;

/// The number of previous segments that a command line says.
///
/// # Errors
/// What was expected, where no bundle can have so many.
pub fn parse_packets(text: &str) -> Result<u32, String> {
    text.parse().map_or_else(|_| Err(expected()), of_packets)
}

fn of_packets(number: u32) -> Result<u32, String> {
    match number <= MOST_PACKETS {
        true => Ok(number),
        false => Err(expected()),
    }
}

fn expected() -> String {
    format!("expected segments, 1 to {MOST_PACKETS}, or 0 for no limit")
}

pub(crate) fn packets<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let number = u32::deserialize(from).map_err(|_| D::Error::custom(expected()))?;
    of_packets(number).map(Some).map_err(D::Error::custom)
}

const EXPECTED_BYTES: &str = "expected bytes, 2 (a new one, and one that rides along) or more, or 0: \
                              the MSS alone limits";

/// The bytes of a segment with its bundle that a command line says.
///
/// # Errors
/// What was expected, where nothing could ride along.
pub fn parse_bytes(text: &str) -> Result<u32, &'static str> {
    text.parse().map_or(Err(EXPECTED_BYTES), of_bytes)
}

fn of_bytes(number: u32) -> Result<u32, &'static str> {
    match number == 1 {
        true => Err(EXPECTED_BYTES),
        false => Ok(number),
    }
}

pub(crate) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let number = u32::deserialize(from).map_err(|_| D::Error::custom(EXPECTED_BYTES))?;
    of_bytes(number).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_per_cent() {
        assert_eq!("0.5".parse().map(Target::ppm), Ok(5_000));
        assert_eq!("100".parse().map(Target::ppm), Ok(1_000_000));
        assert_eq!(Target::default().to_string(), "0.1");
        for mistake in ["", "-1", "100.1", "NaN", "x"] {
            assert_eq!(mistake.parse::<Target>(), Err(TargetError), "{mistake}");
        }
    }

    #[test]
    fn what_no_bundle_can_have_is_refused() {
        assert_eq!(parse_packets("0"), Ok(0));
        assert_eq!(parse_packets("2047"), Ok(2047));
        for mistake in ["", "-1", "2048", "4294967295", "4294967296"] {
            let said = parse_packets(mistake).unwrap_err();
            assert!(said.contains("1 to 2047"), "{mistake}: {said}");
        }
        assert_eq!(parse_bytes("2"), Ok(2));
        for mistake in ["1", "-1", "x"] {
            assert_eq!(parse_bytes(mistake), Err(EXPECTED_BYTES), "{mistake}");
        }
    }
}
