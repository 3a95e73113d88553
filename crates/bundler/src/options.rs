use std::time::Duration;

use serde::Serialize;

use crate::contract::types;

/// When a stream counts as thin, so that it may bundle (LCN 2015, section III.B.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ThinTest {
    /// Dynamic limit: packets in flight x `itt_min` < minimum RTT.
    Dpifl {
        /// The shortest inter-transmission time of a thin stream, in whole microseconds.
        itt_min: Duration,
    },
    /// Static limit: at most so many packets in flight.
    Spifl {
        /// The most packets in flight of a thin stream.
        limit: u32,
    },
    /// Every stream; for experiments.
    Always,
}

impl Default for ThinTest {
    /// DPIFL with 10 ms, the lowest value that the paper justifies (from RFC 4828).
    fn default() -> Self {
        Self::Dpifl {
            itt_min: Duration::from_millis(10),
        }
    }
}

/// What follows from losses that bundles hid from congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reaction {
    /// The kernel reduces the congestion window (CWR), at most once a window of data, as
    /// the paper has it (LCN 2015, section III.B.1).
    #[default]
    Cwr,
    /// As [`Reaction::Cwr`], but only while the stream sends more, redundant bytes included,
    /// than TCP-friendly rate control for small packets allows (RFC 4828).
    TfrcSp,
    /// Nothing follows. For experiments alone: such a stream takes no part in congestion control.
    None,
}

/// How an ACK tells that a bundle hid a loss (LCN 2015, section III.B.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LossRule {
    /// Learnt from the receiver's first ACKs of bundles: by DSACK where it reports
    /// duplicates (RFC 2883), else as [`LossRule::Ack`].
    #[default]
    Auto,
    /// Redundant bytes that the receiver does not report as duplicates were lost.
    Dsack,
    /// An ACK of several segments means loss: the published rule, which takes delayed
    /// ACKs for losses.
    Ack,
}

/// Of the RTTs that the kernel keeps, the one that DPIFL takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ThinRtt {
    /// The connection's minimum, as published.
    #[default]
    Min,
    /// The connection's smoothed RTT, which grows under loss and queueing.
    Smoothed,
}

/// How many previous segments a bundle takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As many as [`Options::max_packets`] allows.
    #[default]
    Fixed,
    /// The fewest that leave no more than a share of the segments unrepaired, judged by the
    /// runs of losses seen; at most 8, and at most [`Options::max_packets`].
    Adaptive {
        /// Share of the segments that may stay unrepaired, in parts per million.
        target_ppm: u32,
    },
}

/// How a connection is bundled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Options {
    /// When the stream counts as thin, so that it may bundle.
    pub thin: ThinTest,
    /// The RTT that [`ThinTest::Dpifl`] takes.
    pub thin_rtt: ThinRtt,
    /// Bundle only after the connection's first retransmission.
    pub wait_for_loss: bool,
    /// How many previous segments a bundle takes.
    pub level: Level,
    /// Previous segments in one bundle at most; 0 for no limit. Default 1, as the
    /// paper recommends (LCN 2015, section VI).
    pub max_packets: u32,
    /// Bytes of payload in a segment with its bundle at most; 0 for no limit. The
    /// MSS limits it in any case.
    pub max_bytes: u32,
    /// What follows from hidden losses.
    pub reaction: Reaction,
    /// How hidden losses are found.
    pub loss_rule: LossRule,
    /// Bundle even where the peer offers no SACK. Losses can then only be guessed, by
    /// [`LossRule::Ack`], and late duplicates count as duplicate ACKs.
    pub without_sack: bool,
    /// Bundle into retransmissions as well: a retransmission of the first unacknowledged segment
    /// takes along the segments that follow it (LCN 2008, section III).
    pub retransmissions: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            thin: ThinTest::default(),
            thin_rtt: ThinRtt::default(),
            wait_for_loss: false,
            level: Level::default(),
            max_packets: 1,
            max_bytes: 0,
            reaction: Reaction::default(),
            loss_rule: LossRule::default(),
            without_sack: false,
            retransmissions: false,
        }
    }
}

impl From<Options> for types::options {
    fn from(options: Options) -> Self {
        let mut raw = Self {
            max_packets: options.max_packets,
            max_bytes: options.max_bytes,
            wait_for_loss: options.wait_for_loss.into(),
            without_sack: options.without_sack.into(),
            retransmissions: options.retransmissions.into(),
            ..Self::default()
        };
        raw.thin_rtt = match options.thin_rtt {
            ThinRtt::Min => types::thin_rtt::THIN_RTT_MIN,
            ThinRtt::Smoothed => types::thin_rtt::THIN_RTT_SMOOTHED,
        };
        raw.level = match options.level {
            Level::Fixed => types::level::LEVEL_FIXED,
            Level::Adaptive { target_ppm } => {
                raw.target_ppm = target_ppm;
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
