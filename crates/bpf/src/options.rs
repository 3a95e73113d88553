use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::contract::types;
use crate::{Target, ThinTest, limits};

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
    #[arg(long, value_name = "N", value_parser = limits::parse_packets)]
    #[serde(deserialize_with = "limits::packets")]
    pub max_packets: Option<u32>,

    /// Bytes of payload in a segment with its bundle at most; 0: the MSS alone limits
    #[arg(long, value_name = "BYTES", default_value_t, value_parser = limits::parse_bytes)]
    #[serde(deserialize_with = "limits::bytes")]
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
