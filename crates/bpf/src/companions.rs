use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::congestion::CongestionControl;
use crate::contract::types::{self, companion as position};

/// Mechanisms of TCP's own that help thin streams beside bundling: socket options, set when
/// a connection is first covered. What is unset stays as the application, or else the
/// kernel, has it.
///
/// Options of the command line, and keys of files under the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Companions: mechanisms of TCP's own, which stay when pillion ends")]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Companions {
    /// Time-outs of a stream with fewer than four packets in flight do not double, six in a
    /// row (LCN 2008, section III; Linux 2.6.34)
    #[arg(long)]
    pub linear_timeouts: bool,

    /// Small segments leave at once: Nagle's algorithm is off
    #[arg(long)]
    pub nodelay: bool,

    /// The shortest retransmission time-out, in milliseconds, up to 200; a route's own goes before
    /// it
    #[arg(long, value_name = "MS", value_parser = short::parse)]
    #[serde(with = "short")]
    pub rto_min: Option<Duration>,

    /// The longest that this end delays an ACK, in milliseconds, up to 200
    #[arg(long, value_name = "MS", value_parser = short::parse)]
    #[serde(with = "short")]
    pub delack_max: Option<Duration>,

    /// End a connection (ETIMEDOUT) whose data is unacknowledged for so many milliseconds (RFC
    /// 5482)
    #[arg(long, value_name = "MS", value_parser = whole::parse)]
    #[serde(with = "whole")]
    pub user_timeout: Option<Duration>,

    /// The congestion control, by the kernel's name for it
    #[arg(long, value_name = "NAME", value_parser = CongestionControl::find)]
    #[serde(deserialize_with = "offered")]
    pub congestion: Option<CongestionControl>,
}

macro_rules! companions {
    ($($(#[$doc:meta])* $name:ident = $raw:ident, $option:literal, $label:literal;)*) => {
        /// One of the mechanisms in [`Companions`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[repr(u32)]
        pub enum Companion {
            $($(#[$doc])* $name = position::$raw.0,)*
        }

        impl Companion {
            /// All companions, in the order in which they are reported.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The companion's name, as options of the command line and keys of a file have it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $option,)*
                }
            }

            /// The companion in a few words for people.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                }
            }
        }
    };
}

companions! {
    /// The mechanism of [`Companions::linear_timeouts`].
    LinearTimeouts = LINEAR_TIMEOUTS, "linear-timeouts", "linear time-outs";
    /// The mechanism of [`Companions::nodelay`].
    Nodelay = NODELAY, "nodelay", "nodelay";
    /// The mechanism of [`Companions::rto_min`].
    RtoMin = RTO_MIN, "rto-min", "minimum RTO";
    /// The mechanism of [`Companions::delack_max`].
    DelackMax = DELACK_MAX, "delack-max", "maximum delayed ACK";
    /// The mechanism of [`Companions::user_timeout`].
    UserTimeout = USER_TIMEOUT, "user-timeout", "user time-out";
    /// The mechanism of [`Companions::congestion`].
    Congestion = CONGESTION, "congestion", "congestion control";
}

impl Companion {
    fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The companions in a set of bits, as the programs keep it.
    pub(crate) fn of(set: u32) -> Vec<Self> {
        let all = Self::ALL.iter().copied();
        all.filter(|companion| set & companion.bit() != 0).collect()
    }

    /// How often each companion was counted; those never counted are left out.
    pub(crate) fn counts(raw: &[u64]) -> BTreeMap<Self, u64> {
        let counts = Self::ALL.iter().copied().zip(raw.iter().copied());
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

impl Companions {
    /// What the kernel takes for [`Companions::rto_min`] and [`Companions::delack_max`] at
    /// most, which is its own default.
    pub const LONGEST: Duration = Duration::from_millis(200);

    /// The least that the kernel takes for [`Companions::rto_min`] and [`Companions::delack_max`]:
    /// two ticks of its clock.
    #[must_use]
    pub fn shortest() -> Duration {
        use nix::time::{ClockId, clock_getres};
        // The coarse clocks move with each tick.
        clock_getres(ClockId::CLOCK_MONOTONIC_COARSE)
            .map_or(Duration::from_millis(20), |tick| Duration::from(tick) * 2)
    }

    /// True if no companion is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The companions that a connection has, from the program's record of it.
    pub(crate) fn of_flow(raw: &types::companions) -> Self {
        let has = |companion: Companion| raw.set & companion.bit() != 0;
        let micros = |us: u32| Duration::from_micros(us.into());
        Self {
            linear_timeouts: has(Companion::LinearTimeouts),
            nodelay: has(Companion::Nodelay),
            rto_min: has(Companion::RtoMin).then(|| micros(raw.rto_min_us)),
            delack_max: has(Companion::DelackMax).then(|| micros(raw.delack_max_us)),
            user_timeout: has(Companion::UserTimeout)
                .then(|| Duration::from_millis(raw.user_timeout_ms.into())),
            congestion: has(Companion::Congestion)
                .then(|| CongestionControl::from_raw(&raw.congestion))
                .flatten(),
        }
    }
}

impl From<Companions> for types::companions {
    fn from(companions: Companions) -> Self {
        let number = |value: u128| u32::try_from(value).unwrap_or(u32::MAX);
        let micros = |time: Option<Duration>| time.map_or(0, |time| number(time.as_micros()));
        let user_timeout = companions.user_timeout;
        let wanted = [
            (Companion::LinearTimeouts, companions.linear_timeouts),
            (Companion::Nodelay, companions.nodelay),
            (Companion::RtoMin, companions.rto_min.is_some()),
            (Companion::DelackMax, companions.delack_max.is_some()),
            (Companion::UserTimeout, user_timeout.is_some()),
            (Companion::Congestion, companions.congestion.is_some()),
        ];
        let bits = wanted.iter().filter(|(_, wanted)| *wanted);
        Self {
            set: bits.fold(0, |set, (companion, _)| set | companion.bit()),
            rto_min_us: micros(companions.rto_min),
            delack_max_us: micros(companions.delack_max),
            user_timeout_ms: user_timeout.map_or(0, |time| number(time.as_millis())),
            congestion: companions
                .congestion
                .map(CongestionControl::raw)
                .unwrap_or_default(),
        }
    }
}

fn offered<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CongestionControl>, D::Error> {
    let name = String::deserialize(from)?;
    CongestionControl::find(&name)
        .map(Some)
        .map_err(D::Error::custom)
}

/// The companions that a connection has, as JSON tells of them: times in microseconds.
pub(crate) mod of_a_flow {
    use std::time::Duration;

    use serde::{Serialize, Serializer};

    use super::{Companions, CongestionControl};

    #[derive(Serialize)]
    struct Told {
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

    pub(crate) fn serialize<S: Serializer>(has: &Companions, to: S) -> Result<S::Ok, S::Error> {
        let micros = |time: Option<Duration>| time.map(|time| time.as_micros() as u64);
        let told = Told {
            linear_timeouts: has.linear_timeouts,
            nodelay: has.nodelay,
            rto_min_us: micros(has.rto_min),
            delack_max_us: micros(has.delack_max),
            user_timeout_us: micros(has.user_timeout),
            congestion: has.congestion,
        };
        told.serialize(to)
    }
}

/// Milliseconds within what the kernel takes for its shortest and longest times.
mod short {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use super::Companions;

    pub(super) fn parse(text: &str) -> Result<Duration, String> {
        text.parse().map_or_else(|_| Err(expected()), of)
    }

    fn of(ms: f64) -> Result<Duration, String> {
        let time = Duration::try_from_secs_f64(ms / 1e3).ok();
        let fits = |time: &Duration| (Companions::shortest()..=Companions::LONGEST).contains(time);
        time.filter(fits).ok_or_else(expected)
    }

    fn expected() -> String {
        format!(
            "expected milliseconds from {} (two ticks of this kernel's clock) to {}",
            Companions::shortest().as_secs_f64() * 1e3,
            Companions::LONGEST.as_millis()
        )
    }

    pub(super) fn deserialize<'de, D>(from: D) -> Result<Option<Duration>, D::Error>
    where
        D: Deserializer<'de>,
    {
        let time = of(f64::deserialize(from)?).map_err(D::Error::custom)?;
        Ok(Some(time))
    }

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let ms = time.map(|time| time.as_nanos() as f64 / 1e6);
        ms.serialize(to)
    }
}

/// Whole milliseconds, as many as fit into an `int`.
mod whole {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    const EXPECTED: &str = "expected whole milliseconds from 1 to 2147483647";

    pub(super) fn parse(text: &str) -> Result<Duration, &'static str> {
        text.parse().map_or(Err(EXPECTED), of)
    }

    fn of(ms: f64) -> Result<Duration, &'static str> {
        match ms.fract() == 0.0 && (1.0..=f64::from(i32::MAX)).contains(&ms) {
            true => Ok(Duration::from_millis(ms as u64)),
            false => Err(EXPECTED),
        }
    }

    pub(super) fn deserialize<'de, D>(from: D) -> Result<Option<Duration>, D::Error>
    where
        D: Deserializer<'de>,
    {
        let time = of(f64::deserialize(from)?).map_err(D::Error::custom)?;
        Ok(Some(time))
    }

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(|time| time.as_millis() as u64).serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_companion_of_the_programs_has_a_name_here() {
        let values: Vec<_> = Companion::ALL.iter().map(|one| *one as u32).collect();
        assert_eq!(values, (0..position::COMPANIONS.0).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_unset_is_not_asked_for() {
        assert_eq!(types::companions::from(Companions::default()).set, 0);
        let some = Companions {
            nodelay: true,
            rto_min: Some(Duration::from_millis(40)),
            ..Companions::default()
        };
        let raw = types::companions::from(some);
        assert_eq!(
            Companion::of(raw.set),
            [Companion::Nodelay, Companion::RtoMin]
        );
        assert_eq!(raw.rto_min_us, 40_000);
    }

    #[test]
    fn times_are_read_within_the_kernels_bounds() {
        assert_eq!(short::parse("50.5"), Ok(Duration::from_micros(50_500)));
        assert_eq!(short::parse("200"), Ok(Duration::from_millis(200)));
        for mistake in [
            "", "0", "0.5", "200.1", "-40", "NaN", "inf", "1e300", "40ms",
        ] {
            let said = short::parse(mistake).unwrap_err();
            assert!(said.ends_with(" to 200"), "{mistake}: {said}");
        }
    }

    #[test]
    fn times_are_whole_milliseconds() {
        let longest = Duration::from_millis(i32::MAX as u64);
        assert_eq!(whole::parse("2147483647"), Ok(longest));
        for mistake in ["", "0", "-1", "1.5", "2147483648", "soon"] {
            assert!(whole::parse(mistake).is_err(), "{mistake}");
        }
    }
}
