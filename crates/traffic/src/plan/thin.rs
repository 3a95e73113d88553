use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ConfigError, Group, Kind, RampUp, SocketOptions, Traffic};
use crate::distribution::Distribution;
use crate::durations::{milliseconds, optional_milliseconds, seconds};

/// Thin streams that are all alike, the simplest [`Traffic`]. In files, durations are numbers in the unit that ends the key's name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendConfig {
    /// The receiver.
    pub to: SocketAddr,
    /// Number of TCP connections, 1 to 65,535.
    pub streams: usize,
    /// Mean inter-transmission time of a stream, at least 1 us.
    #[serde(rename = "itt_ms", with = "milliseconds")]
    pub itt: Duration,
    /// Standard deviation of the inter-transmission time, 0 for a fixed beat.
    #[serde(rename = "itt_sd_ms", with = "milliseconds", default)]
    pub itt_sd: Duration,
    /// Payload bytes of a message, 1 B to 1 MiB.
    pub size: usize,
    /// How long messages fall due after the barrier has opened.
    #[serde(rename = "duration_s", with = "seconds")]
    pub duration: Duration,
    /// Time between the starts of two streams; `None` stands for the ITT divided by the streams.
    #[serde(rename = "ramp_up_ms", with = "optional_milliseconds", default)]
    pub ramp_up: Option<Duration>,
    /// Congestion control of the connections; `None` leaves the host's default.
    #[serde(default)]
    pub congestion: Option<String>,
    /// Seed of the inter-transmission times and of the content.
    #[serde(default)]
    pub seed: u64,
    /// How long all connections together may take to establish.
    #[serde(
        rename = "connect_timeout_s",
        with = "seconds",
        default = "connect_timeout"
    )]
    pub connect_timeout: Duration,
    /// How long data still queued and the receiver's closing may take after the last message.
    #[serde(
        rename = "drain_timeout_s",
        with = "seconds",
        default = "drain_timeout"
    )]
    pub drain_timeout: Duration,
}

pub(super) fn connect_timeout() -> Duration {
    Duration::from_secs(10)
}

pub(super) fn drain_timeout() -> Duration {
    Duration::from_secs(30)
}

impl SendConfig {
    /// Finds the first value that is out of range.
    ///
    /// # Errors
    /// Which, and what may stand there.
    pub fn validate(&self) -> Result<(), ConfigError> {
        Traffic::from(self.clone()).validate()
    }
}

impl From<SendConfig> for Traffic {
    fn from(config: SendConfig) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let itt = match config.itt_sd.is_zero() {
            true => Distribution::constant(ms(config.itt)),
            false => Distribution::Normal {
                mean: ms(config.itt),
                sd: ms(config.itt_sd),
            },
        };
        let size = Distribution::constant(config.size as f64);
        let group = Group {
            streams: config.streams,
            ramp_up: config.ramp_up.map_or(RampUp::Spread, RampUp::Fixed),
            socket: SocketOptions {
                congestion: config.congestion,
                ..SocketOptions::default()
            },
            ..Group::new("thin", Kind::Thin { itt, size })
        };
        Self {
            duration: Some(config.duration),
            seed: config.seed,
            connect_timeout: config.connect_timeout,
            drain_timeout: config.drain_timeout,
            ..Self::new(config.to, group)
        }
    }
}
