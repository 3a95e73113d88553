use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::congestion::CongestionControl;
use crate::contract::types::{self, tcp_option as index};

/// TCP options of the kernel that help thin streams in addition to bundling, set when a connection
/// is first covered. Unset ones keep the value of the application or the kernel.
///
/// Options of the command line, and keys of files with the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Args, Serialize, Deserialize)]
#[command(next_help_heading = "TCP options (remain set after pillion exits)")]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TcpOptions {
    /// Do not double retransmission time-outs of a stream with fewer than four packets in flight, up
    /// to six in a row (LCN 2008, section III; Linux 2.6.34)
    #[arg(long)]
    pub linear_timeouts: bool,

    /// Send small segments immediately: Nagle's algorithm off
    #[arg(long)]
    pub nodelay: bool,

    /// Minimum retransmission time-out, up to 200ms; a route's own minimum takes precedence
    #[arg(long, value_name = "DURATION", value_parser = bounded_duration::parse)]
    #[serde(with = "bounded_duration")]
    pub rto_min: Option<Duration>,

    /// Maximum delay of an ACK from this host, up to 200ms
    #[arg(long, value_name = "DURATION", value_parser = bounded_duration::parse)]
    #[serde(with = "bounded_duration")]
    pub delack_max: Option<Duration>,

    /// Abort a connection (ETIMEDOUT) whose data stays unacknowledged this long, as in 30s (RFC
    /// 5482)
    #[arg(long, value_name = "DURATION", value_parser = whole_ms::parse)]
    #[serde(with = "whole_ms")]
    pub user_timeout: Option<Duration>,

    /// Congestion control, by its name in the kernel
    #[arg(long, value_name = "NAME", value_parser = CongestionControl::find)]
    #[serde(deserialize_with = "available")]
    pub congestion: Option<CongestionControl>,
}

macro_rules! tcp_options {
    ($($(#[$doc:meta])* $name:ident = $raw:ident, $option:literal, $label:literal;)*) => {
        /// One of the mechanisms in [`TcpOptions`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[repr(u32)]
        pub enum TcpOption {
            $($(#[$doc])* $name = index::$raw.0,)*
        }

        impl TcpOption {
            /// All TCP options, in the order of reports.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The TCP option's name on the command line and in files.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $option,)*
                }
            }

            /// A short label of the TCP option.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                }
            }
        }
    };
}

tcp_options! {
    /// The mechanism of [`TcpOptions::linear_timeouts`].
    LinearTimeouts = LINEAR_TIMEOUTS, "linear-timeouts", "linear time-outs";
    /// The mechanism of [`TcpOptions::nodelay`].
    Nodelay = NODELAY, "nodelay", "nodelay";
    /// The mechanism of [`TcpOptions::rto_min`].
    RtoMin = RTO_MIN, "rto-min", "minimum RTO";
    /// The mechanism of [`TcpOptions::delack_max`].
    DelackMax = DELACK_MAX, "delack-max", "maximum delayed ACK";
    /// The mechanism of [`TcpOptions::user_timeout`].
    UserTimeout = USER_TIMEOUT, "user-timeout", "user time-out";
    /// The mechanism of [`TcpOptions::congestion`].
    Congestion = CONGESTION, "congestion", "congestion control";
}

impl TcpOption {
    fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The TCP options in the programs' bit set.
    pub(crate) fn from_bits(set: u32) -> Vec<Self> {
        let all = Self::ALL.iter().copied();
        all.filter(|tcp_option| set & tcp_option.bit() != 0)
            .collect()
    }

    /// The count of each TCP option, without zeros.
    pub(crate) fn counts(raw: &[u64]) -> BTreeMap<Self, u64> {
        let counts = Self::ALL.iter().copied().zip(raw.iter().copied());
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

impl TcpOptions {
    /// The kernel's maximum, and default, of [`TcpOptions::rto_min`] and
    /// [`TcpOptions::delack_max`].
    pub const MAX_TIME: Duration = Duration::from_millis(200);

    /// The kernel's minimum of [`TcpOptions::rto_min`] and [`TcpOptions::delack_max`]:
    /// two ticks of its clock.
    #[must_use]
    pub fn min_time() -> Duration {
        use nix::time::{ClockId, clock_getres};
        // The coarse clocks move with each tick.
        clock_getres(ClockId::CLOCK_MONOTONIC_COARSE)
            .map_or(Duration::from_millis(20), |tick| Duration::from(tick) * 2)
    }

    /// True if no TCP option is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The TCP options of a connection, from the programs' record.
    pub(crate) fn from_flow(raw: &types::tcp_options) -> Self {
        let has = |tcp_option: TcpOption| raw.set & tcp_option.bit() != 0;
        let micros = |us: u32| Duration::from_micros(us.into());
        Self {
            linear_timeouts: has(TcpOption::LinearTimeouts),
            nodelay: has(TcpOption::Nodelay),
            rto_min: has(TcpOption::RtoMin).then(|| micros(raw.rto_min_us)),
            delack_max: has(TcpOption::DelackMax).then(|| micros(raw.delack_max_us)),
            user_timeout: has(TcpOption::UserTimeout)
                .then(|| Duration::from_millis(raw.user_timeout_ms.into())),
            congestion: has(TcpOption::Congestion)
                .then(|| CongestionControl::from_raw(&raw.congestion))
                .flatten(),
        }
    }
}

impl From<TcpOptions> for types::tcp_options {
    fn from(tcp_options: TcpOptions) -> Self {
        let number = |value: u128| u32::try_from(value).unwrap_or(u32::MAX);
        let micros = |time: Option<Duration>| time.map_or(0, |time| number(time.as_micros()));
        let user_timeout = tcp_options.user_timeout;
        let requested = [
            (TcpOption::LinearTimeouts, tcp_options.linear_timeouts),
            (TcpOption::Nodelay, tcp_options.nodelay),
            (TcpOption::RtoMin, tcp_options.rto_min.is_some()),
            (TcpOption::DelackMax, tcp_options.delack_max.is_some()),
            (TcpOption::UserTimeout, user_timeout.is_some()),
            (TcpOption::Congestion, tcp_options.congestion.is_some()),
        ];
        let bits = requested.iter().filter(|(_, requested)| *requested);
        Self {
            set: bits.fold(0, |set, (tcp_option, _)| set | tcp_option.bit()),
            rto_min_us: micros(tcp_options.rto_min),
            delack_max_us: micros(tcp_options.delack_max),
            user_timeout_ms: user_timeout.map_or(0, |time| number(time.as_millis())),
            congestion: tcp_options
                .congestion
                .map(CongestionControl::raw)
                .unwrap_or_default(),
        }
    }
}

fn available<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CongestionControl>, D::Error> {
    let name = String::deserialize(from)?;
    CongestionControl::find(&name)
        .map(Some)
        .map_err(D::Error::custom)
}

/// JSON of a connection's TCP options, with times in microseconds.
pub(crate) mod flow_json {
    use std::time::Duration;

    use serde::{Serialize, Serializer};

    use super::{CongestionControl, TcpOptions};

    #[derive(Serialize)]
    struct FlowOptions {
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        linear_timeouts: bool,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        nodelay: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        rto_min_us: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        delack_max_us: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        user_timeout_us: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        congestion: Option<CongestionControl>,
    }

    pub(crate) fn serialize<S: Serializer>(has: &TcpOptions, to: S) -> Result<S::Ok, S::Error> {
        let micros = |time: Option<Duration>| time.map(|time| time.as_micros() as u64);
        let serialized = FlowOptions {
            linear_timeouts: has.linear_timeouts,
            nodelay: has.nodelay,
            rto_min_us: micros(has.rto_min),
            delack_max_us: micros(has.delack_max),
            user_timeout_us: micros(has.user_timeout),
            congestion: has.congestion,
        };
        serialized.serialize(to)
    }
}

/// Durations in the kernel's range for its minimum RTO and maximum ACK delay.
mod bounded_duration {
    use std::time::Duration;

    use serde::Deserializer;

    use super::TcpOptions;
    use crate::units::{self, format_duration, parse_duration};

    pub(super) fn parse(text: &str) -> Result<Duration, String> {
        let duration = parse_duration(text)?;
        let min = TcpOptions::min_time();
        match (min..=TcpOptions::MAX_TIME).contains(&duration) {
            true => Ok(duration),
            false => Err(format!(
                "expected {} (two ticks of this kernel's clock) to {}",
                format_duration(min),
                format_duration(TcpOptions::MAX_TIME)
            )),
        }
    }

    pub(super) fn deserialize<'de, D>(from: D) -> Result<Option<Duration>, D::Error>
    where
        D: Deserializer<'de>,
    {
        units::deserialize(from, parse).map(Some)
    }

    pub(super) use crate::units::serialize_duration as serialize;
}

/// Durations in whole milliseconds that fit into an `int`.
mod whole_ms {
    use std::time::Duration;

    use serde::Deserializer;

    use crate::units::{self, parse_duration};

    const MAX: Duration = Duration::from_millis(i32::MAX as u64);

    pub(super) fn parse(text: &str) -> Result<Duration, String> {
        let duration = parse_duration(text)?;
        let is_whole = duration.subsec_nanos() % 1_000_000 == 0;
        match is_whole && !duration.is_zero() && duration <= MAX {
            true => Ok(duration),
            false => Err("expected whole milliseconds, 1ms to 2147483647ms".to_owned()),
        }
    }

    pub(super) fn deserialize<'de, D>(from: D) -> Result<Option<Duration>, D::Error>
    where
        D: Deserializer<'de>,
    {
        units::deserialize(from, parse).map(Some)
    }

    pub(super) use crate::units::serialize_duration as serialize;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_tcp_option_has_rust_name() {
        let values: Vec<_> = TcpOption::ALL.iter().map(|one| *one as u32).collect();
        assert_eq!(values, (0..index::TCP_OPTION_COUNT.0).collect::<Vec<_>>());
    }

    #[test]
    fn unset_tcp_options_are_not_requested() {
        assert_eq!(types::tcp_options::from(TcpOptions::default()).set, 0);
        let some = TcpOptions {
            nodelay: true,
            rto_min: Some(Duration::from_millis(40)),
            ..TcpOptions::default()
        };
        let raw = types::tcp_options::from(some);
        assert_eq!(
            TcpOption::from_bits(raw.set),
            [TcpOption::Nodelay, TcpOption::RtoMin]
        );
        assert_eq!(raw.rto_min_us, 40_000);
    }

    #[test]
    fn durations_outside_kernel_bounds_are_rejected() {
        assert_eq!(
            bounded_duration::parse("50.5ms"),
            Ok(Duration::from_micros(50_500))
        );
        assert_eq!(
            bounded_duration::parse("200ms"),
            Ok(Duration::from_millis(200))
        );
        for mistake in ["0s", "0.5ms", "200.1ms", "1h"] {
            let error = bounded_duration::parse(mistake).unwrap_err();
            assert!(error.ends_with(" to 200ms"), "{mistake}: {error}");
        }
        for mistake in ["", "-40ms", "NaN", "inf", "1e300", "40"] {
            assert!(bounded_duration::parse(mistake).is_err(), "{mistake}");
        }
    }

    #[test]
    fn fractional_user_timeout_is_rejected() {
        let longest = Duration::from_millis(i32::MAX as u64);
        assert_eq!(whole_ms::parse("2147483647ms"), Ok(longest));
        for mistake in ["", "0s", "-1ms", "1.5ms", "2147483648ms", "1000", "soon"] {
            assert!(whole_ms::parse(mistake).is_err(), "{mistake}");
        }
    }
}
