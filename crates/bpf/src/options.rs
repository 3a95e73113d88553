use std::fmt;
use std::mem::offset_of;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ThinTest;
use crate::contract::types;
use crate::units::{self, parse_percent};

/// Reaction to losses that bundles hid from congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reaction {
    /// Reduce the congestion window, at most once per window of data (LCN 2015, section III.B.1)
    Cwr,
    /// Reduce the congestion window only if the stream sends more than its fair share, redundant
    /// bytes included (RFC 4828)
    TfrcSp,
    /// Do not react; for experiments, with --unsafe: the stream ignores congestion control
    None,
}

/// Rule by which an ACK shows that a bundle hid a loss (LCN 2015, section III.B.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossRule {
    /// By the receiver's DSACKs (RFC 2883); bundling stops if its ACKs of bundles show that it sends
    /// none
    #[default]
    Auto,
    /// Redundant bytes that the receiver does not report as duplicates were lost.
    #[value(skip)]
    #[serde(skip_deserializing)]
    Dsack,
    /// An ACK of several segments means loss: the published rule, which mistakes delayed ACKs for
    /// losses
    Ack,
    /// The receiver reports no duplicates. Hidden losses are undetectable, so nothing is bundled.
    #[value(skip)]
    #[serde(skip_deserializing)]
    None,
}

/// Kernel RTT estimate that DPIFL uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThinRtt {
    /// Minimum RTT of the connection, as published
    #[default]
    Min,
    /// Smoothed RTT of the connection, which grows under loss and queueing
    Smoothed,
}

/// Policy for the number of previous segments in a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Up to --max-packets
    Fixed,
    /// The fewest that repair the observed loss runs, up to --max-packets and 8
    Adaptive,
    /// None, for --copies without bundles
    None,
    /// As adaptive, and a copy of each segment while bundles leave more messages late than
    /// --target; within RFC 4828's rate and --max-overhead
    Auto,
}

/// Segments that are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopiesWhen {
    /// Each small new segment of a thin stream
    #[default]
    Always,
    /// Segments that no bundle repairs soon: nothing is outstanding before, or the time between
    /// messages exceeds the RTT
    Isolated,
}

/// Help heading of options for experiments, which short help omits.
pub const EXPERIMENTAL: &str = "Experimental";

/// Bundling options of a connection, and keys of files under the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Bundling")]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// Thin-stream test: `dpifl[:MS]`, packets in flight x MS < minimum RTT; `spifl:N`, at most N
    /// packets in flight; `always`, for experiments
    #[arg(long, value_name = "TEST", default_value_t)]
    pub thin: ThinTest,

    /// RTT for dpifl
    #[arg(long, value_name = "RTT", value_enum, default_value_t, help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub thin_rtt: ThinRtt,

    /// Bundle only after the connection's first retransmission
    #[arg(long, help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub wait_for_loss: bool,

    /// Number of previous segments in a bundle [default: auto; fixed with --max-packets or --copies]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub level: Option<Level>,

    /// With --level adaptive: share of segments that may stay unrepaired; with auto: share of
    /// messages that may be late, as in 0.5% [default: 0.1%]
    #[arg(long, value_name = "PERCENT", help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub target: Option<Target>,

    /// With --level auto: extra delay from which a message is late, 1ms to 10s [default: the time
    /// between messages, at most 100ms, + 5ms]
    #[arg(long, value_name = "DURATION", value_parser = parse_deadline)]
    #[serde(
        deserialize_with = "deadline",
        serialize_with = "units::serialize_duration"
    )]
    pub deadline: Option<Duration>,

    /// With --level auto: maximum bytes of a segment with its bundle and copy, headers included,
    /// relative to the plain segment: 1 to 31 [default: 4]
    #[arg(long, value_name = "FACTOR")]
    pub max_overhead: Option<Overhead>,

    /// Maximum number of previous segments in a bundle; 0: no limit [default: 1 with --level fixed,
    /// as recommended by LCN 2015, section VI; otherwise 0]
    #[arg(long, value_name = "N", value_parser = parse_packets)]
    #[serde(deserialize_with = "packets")]
    pub max_packets: Option<u32>,

    /// Maximum payload of a segment with its bundle, in bytes; 0: limited by the MSS only
    #[arg(long, value_name = "BYTES", default_value_t, value_parser = parse_bytes)]
    #[serde(deserialize_with = "bytes")]
    pub max_bytes: u32,

    /// Number of extra copies of each small new segment, 0 to 2; a copy leaves at once, with the
    /// segment's bundle
    #[arg(long, value_name = "N", default_value_t, value_parser = parse_copies)]
    #[serde(deserialize_with = "copies")]
    pub copies: u8,

    /// Segments that --copies applies to
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub copies_when: CopiesWhen,

    /// Send copies this much later, 1ms to 200ms and at most half the time between messages, against
    /// losses in bursts; needs the queueing discipline fq at the device, otherwise copies leave at once
    /// [default: at once]
    #[arg(long, value_name = "DURATION", value_parser = parse_copy_delay)]
    #[serde(
        deserialize_with = "copy_delay",
        serialize_with = "units::serialize_duration"
    )]
    pub copy_delay: Option<Duration>,

    /// Reaction to a loss that a bundle hid [default: tfrc-sp]
    #[arg(long, value_name = "REACTION", value_enum)]
    pub reaction: Option<Reaction>,

    /// How hidden losses are detected
    #[arg(long, value_name = "RULE", value_enum, default_value_t, help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub loss_rule: LossRule,

    /// Bundle even if the peer does not offer SACK: hidden losses are then guessed as by
    /// --loss-rule ack, and late duplicates count as duplicate ACKs
    #[arg(long, help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub without_sack: bool,

    /// Bundle into retransmissions as well: the retransmission of the first unacknowledged segment
    /// includes whole segments that follow it, within the same limits (LCN 2008, section III)
    #[arg(long, help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub bundle_retransmissions: bool,

    /// Bundle as the papers do, by default with --level fixed and --reaction cwr, and without
    /// pillion's guards: bundles of any size leave before the path is known to carry them. For
    /// experiments: a path that drops large packets can stop such a stream. All other options still
    /// apply
    #[arg(long, help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub published: bool,
}

impl Options {
    /// Returns the level in force.
    #[must_use]
    pub fn level(&self) -> Level {
        let is_fixed = self.published || self.max_packets.is_some() || self.copies > 0;
        self.level
            .unwrap_or(if is_fixed { Level::Fixed } else { Level::Auto })
    }

    /// Returns the reaction in force.
    #[must_use]
    pub fn reaction(&self) -> Reaction {
        self.reaction.unwrap_or(match self.published {
            true => Reaction::Cwr,
            false => Reaction::TfrcSp,
        })
    }

    /// Returns the same options with level and reaction set.
    #[must_use]
    pub fn resolved(self) -> Self {
        Self {
            level: Some(self.level()),
            reaction: Some(self.reaction()),
            ..self
        }
    }
}

impl From<Options> for types::options {
    fn from(options: Options) -> Self {
        let mut raw = Self {
            max_packets: options.max_packets.unwrap_or(match options.level() {
                Level::Fixed => 1,
                Level::Adaptive | Level::None | Level::Auto => 0,
            }),
            max_bytes: options.max_bytes,
            wait_for_loss: options.wait_for_loss.into(),
            without_sack: options.without_sack.into(),
            retransmissions: options.bundle_retransmissions.into(),
            published: options.published.into(),
            copies: options.copies,
            copies_when: match options.copies_when {
                CopiesWhen::Always => types::copies_when::COPY_ALL,
                CopiesWhen::Isolated => types::copies_when::COPY_ISOLATED,
            }
            .0 as u8,
            copy_delay_ms: options.copy_delay.map_or(0, |it| it.as_millis() as u8),
            ..Self::default()
        };
        raw.thin_rtt = match options.thin_rtt {
            ThinRtt::Min => types::thin_rtt::THIN_RTT_MIN,
            ThinRtt::Smoothed => types::thin_rtt::THIN_RTT_SMOOTHED,
        };
        let level = match options.level() {
            Level::Fixed => types::level::LEVEL_FIXED,
            Level::Adaptive => types::level::LEVEL_ADAPTIVE,
            Level::None => types::level::LEVEL_NONE,
            Level::Auto => types::level::LEVEL_AUTO,
        };
        raw.level = level.0 as u8;
        if matches!(options.level(), Level::Adaptive | Level::Auto) {
            raw.target_ppm = options.target.unwrap_or_default().ppm();
        }
        if options.level() == Level::Auto {
            raw.max_overhead = options.max_overhead.unwrap_or_default().0;
            raw.deadline_ms = options.deadline.map_or(0, |it| it.as_millis() as u16);
        }
        raw.reaction = match options.reaction() {
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
                raw.spifl = u16::try_from(limit).unwrap_or(u16::MAX);
                types::thin_test::THIN_SPIFL
            }
            ThinTest::Always => types::thin_test::THIN_ALWAYS,
        };
        raw
    }
}

/// Share of segments that may stay unrepaired: 0 to 100 %, stored in parts per million.
///
/// Its text is a percentage, as in `0.1%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    ppm: u32,
}

/// Invalid text of a [`Target`], and the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TargetError(String);

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

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let percent = parse_percent(text).map_err(TargetError)?;
        Ok(Self {
            ppm: (percent * 1e4).round() as u32,
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.ppm) / 1e4)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        units::deserialize(from, |text| text.parse().map_err(|TargetError(why)| why))
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

const DEADLINES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);

/// Parses a deadline, 1 ms to 10 s; fractions of milliseconds are dropped.
///
/// # Errors
/// The expected form.
pub fn parse_deadline(text: &str) -> Result<Duration, String> {
    parse_within(text, &DEADLINES, "deadline", "1ms to 10s")
}

pub(crate) fn deadline<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    units::deserialize(from, parse_deadline).map(Some)
}

const COPY_DELAYS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(200);

/// Parses the delay of copies, 1 ms to 200 ms; fractions of milliseconds are dropped.
///
/// # Errors
/// The expected form.
pub fn parse_copy_delay(text: &str) -> Result<Duration, String> {
    parse_within(text, &COPY_DELAYS, "delay", "1ms to 200ms")
}

pub(crate) fn copy_delay<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    units::deserialize(from, parse_copy_delay).map(Some)
}

fn parse_within(
    text: &str,
    range: &RangeInclusive<Duration>,
    name: &str,
    expected: &str,
) -> Result<Duration, String> {
    let duration = units::parse_duration(text)?;
    match range.contains(&duration) {
        true => Ok(duration),
        false => Err(format!("invalid {name} `{text}`: expected {expected}")),
    }
}

/// Bytes with redundancy relative to plain bytes: 1 to 31, stored in eighths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overhead(u8);

impl Default for Overhead {
    /// Four times the plain bytes.
    fn default() -> Self {
        Self(4 * 8)
    }
}

impl FromStr for Overhead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let factor: Option<f64> = text.parse().ok();
        let factor = factor.filter(|factor| (1.0..=31.0).contains(factor));
        let expected = || format!("invalid factor `{text}`: expected 1 to 31, as in 3.5");
        factor.map(|it| Self((it * 8.0) as u8)).ok_or_else(expected)
    }
}

impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 8.0)
    }
}

impl<'de> Deserialize<'de> for Overhead {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let factor = f64::deserialize(from)?;
        factor.to_string().parse().map_err(D::Error::custom)
    }
}

impl Serialize for Overhead {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(f64::from(self.0) / 8.0)
    }
}

/// Maximum number of previous segments in a bundle. The programs store this many bytes of payload
/// for each connection (the first field), less one new byte, and a segment has at least one byte.
const MAX_PREVIOUS_SEGMENTS: u32 = offset_of!(types::flow, counters) as u32 - 1;

/// Parses the maximum number of previous segments, 0 to 2,047.
///
/// # Errors
/// The expected range.
pub fn parse_packets(text: &str) -> Result<u32, String> {
    text.parse().map_or_else(|_| Err(expected()), check_packets)
}

fn check_packets(number: u32) -> Result<u32, String> {
    match number <= MAX_PREVIOUS_SEGMENTS {
        true => Ok(number),
        false => Err(expected()),
    }
}

fn expected() -> String {
    format!("expected 1 to {MAX_PREVIOUS_SEGMENTS} segments, or 0 for no limit")
}

pub(crate) fn packets<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let number = u32::deserialize(from).map_err(|_| D::Error::custom(expected()))?;
    check_packets(number).map(Some).map_err(D::Error::custom)
}

const EXPECTED_COPIES: &str = "expected 0, 1 or 2 copies";

/// Parses the number of copies.
///
/// # Errors
/// The expected range.
pub fn parse_copies(text: &str) -> Result<u8, &'static str> {
    text.parse().map_or(Err(EXPECTED_COPIES), check_copies)
}

fn check_copies(number: u8) -> Result<u8, &'static str> {
    match u32::from(number) <= types::max_copies::MAX_COPIES.0 {
        true => Ok(number),
        false => Err(EXPECTED_COPIES),
    }
}

pub(crate) fn copies<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    let number = u8::deserialize(from).map_err(|_| D::Error::custom(EXPECTED_COPIES))?;
    check_copies(number).map_err(D::Error::custom)
}

const EXPECTED_BYTES: &str = "expected at least 2 bytes (one new, one bundled), or 0 for the \
                              MSS as the only limit";

/// Parses the maximum payload of a segment with its bundle, in bytes.
///
/// # Errors
/// The expected form if no previous segment could fit.
pub fn parse_bytes(text: &str) -> Result<u32, &'static str> {
    text.parse().map_or(Err(EXPECTED_BYTES), check_bytes)
}

fn check_bytes(number: u32) -> Result<u32, &'static str> {
    match number == 1 {
        true => Err(EXPECTED_BYTES),
        false => Ok(number),
    }
}

pub(crate) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let number = u32::deserialize(from).map_err(|_| D::Error::custom(EXPECTED_BYTES))?;
    check_bytes(number).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_and_reaction_depend_on_other_options() {
        let default = Options::default();
        let in_force = |options: Options| (options.level(), options.reaction());
        assert_eq!(in_force(default), (Level::Auto, Reaction::TfrcSp));
        for options in [
            Options {
                max_packets: Some(0),
                ..default
            },
            Options {
                copies: 1,
                ..default
            },
        ] {
            assert_eq!(in_force(options), (Level::Fixed, Reaction::TfrcSp));
        }
        let published = Options {
            published: true,
            ..default
        };
        assert_eq!(in_force(published), (Level::Fixed, Reaction::Cwr));
        let raw = types::options::from(published);
        assert_eq!(raw.max_packets, 1);
        let chosen = Options {
            level: Some(Level::Auto),
            reaction: Some(Reaction::None),
            ..published
        };
        assert_eq!(in_force(chosen), (Level::Auto, Reaction::None));
    }

    #[test]
    fn target_parses_percent() {
        assert_eq!("0.5%".parse().map(Target::ppm), Ok(5_000));
        assert_eq!("100%".parse().map(Target::ppm), Ok(1_000_000));
        assert_eq!(Target::default().to_string(), "0.1%");
        for mistake in ["", "0.5", "-1%", "100.1%", "NaN%", "x"] {
            assert!(mistake.parse::<Target>().is_err(), "{mistake}");
        }
    }

    #[test]
    fn impossible_limits_are_rejected() {
        assert_eq!(parse_packets("0"), Ok(0));
        assert_eq!(parse_packets("2047"), Ok(2047));
        for mistake in ["", "-1", "2048", "4294967295", "4294967296"] {
            let error = parse_packets(mistake).unwrap_err();
            assert!(error.contains("1 to 2047"), "{mistake}: {error}");
        }
        assert_eq!("3.5".parse(), Ok(Overhead(28)));
        for mistake in ["0.9", "31.1", "NaN", "x", ""] {
            assert!(mistake.parse::<Overhead>().is_err(), "{mistake}");
        }
        assert_eq!(parse_deadline("20ms"), Ok(Duration::from_millis(20)));
        for mistake in ["0ms", "10.1s", "5", "x"] {
            assert!(parse_deadline(mistake).is_err(), "{mistake}");
        }
        assert_eq!(parse_copies("2"), Ok(2));
        for mistake in ["3", "-1", "256", "x"] {
            assert_eq!(parse_copies(mistake), Err(EXPECTED_COPIES), "{mistake}");
        }
        assert_eq!(parse_bytes("2"), Ok(2));
        for mistake in ["1", "-1", "x"] {
            assert_eq!(parse_bytes(mistake), Err(EXPECTED_BYTES), "{mistake}");
        }
    }
}
