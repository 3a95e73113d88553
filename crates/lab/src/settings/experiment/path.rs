use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Disturbance, Emulation, Loss, Share, loss};
use pillion_cli::settings::document::known::flattened;
use pillion_cli::settings::times::{of_ms, parse_ms, to_ms};
use pillion_cli::settings::{BadInput, text, times};

/// The emulator: its own keys are those of the direction to the receiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, rename_all = "kebab-case")]
pub struct Path {
    /// The round-trip time, half of it each way.
    #[serde(
        deserialize_with = "rtt",
        serialize_with = "times::milliseconds::serialize"
    )]
    pub rtt: Duration,
    /// The direction to the receiver.
    #[serde(flatten)]
    pub forward: PathDirection,
    /// The direction back.
    pub back: PathDirection,
}

flattened!(Path);

/// What is done to packets in one direction, beside the delay that follows from the round-trip
/// time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PathDirection {
    /// The standard deviation of the delay; packets keep their order.
    #[serde(with = "times::milliseconds")]
    pub jitter: Duration,
    /// Which packets are lost.
    #[serde(with = "loss")]
    pub loss: Option<Loss>,
    /// Which packets come out of order.
    #[serde(with = "text::option")]
    pub reorder: Option<Reorder>,
    /// Share of packets that come twice.
    pub duplicate: Share,
}

/// Packets that are held back, so that others overtake them: `PERCENT:MS`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reorder {
    /// Share of packets that are held back.
    pub share: Share,
    /// By how much longer than others such a packet is held.
    pub late: Duration,
}

impl Path {
    /// What is done to packets on their way to the receiver.
    pub(super) fn forward(&self) -> Emulation {
        self.forward.delayed(self.rtt / 2)
    }

    /// What is done to packets on their way back.
    pub(super) fn backward(&self) -> Emulation {
        self.back.delayed(self.rtt / 2)
    }
}

impl PathDirection {
    fn delayed(&self, delay: Duration) -> Emulation {
        let disturbance = Disturbance {
            reorder: self.reorder.map_or(0.0, |reorder| reorder.share.get()),
            late: self.reorder.map_or(Duration::ZERO, |reorder| reorder.late),
            duplicate: self.duplicate.get(),
        };
        Emulation {
            delay,
            jitter: Some(self.jitter).filter(|jitter| !jitter.is_zero()),
            loss: self.loss.clone(),
            disturbance: Some(disturbance).filter(|it| *it != Disturbance::default()),
        }
    }
}

/// The longest round-trip time in milliseconds: a path delays a minute each way at most.
const LONGEST_MS: f64 = 120_000.0;

const EXPECTED_RTT: &str = "expected milliseconds, 0 to 120000";

fn rtt<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let ms = f64::deserialize(from).ok();
    ms.and_then(of_rtt)
        .ok_or_else(|| D::Error::custom(EXPECTED_RTT))
}

fn of_rtt(ms: f64) -> Option<Duration> {
    of_ms(ms).filter(|_| ms <= LONGEST_MS)
}

/// A path's round-trip time in milliseconds.
pub(super) fn parse_rtt(text: &str) -> Result<Duration, BadInput> {
    let ms = text.parse().ok();
    ms.and_then(of_rtt).ok_or_else(|| EXPECTED_RTT.into())
}

impl FromStr for Reorder {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let parsed = text.split_once(':').and_then(|(share, late)| {
            let late = parse_ms(late).ok().filter(|late| !late.is_zero())?;
            let share = share.parse().ok()?;
            Some(Self { share, late })
        });
        parsed.ok_or_else(|| "expected per cent and milliseconds, as in \"1:5\"".into())
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.share, to_ms(self.late))
    }
}
