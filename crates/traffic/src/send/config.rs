use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::durations::{milliseconds, optional_milliseconds, seconds};
use crate::schedule::Schedule;
use crate::wire::{MAX_SIZE, Message};

/// Thin streams to send. In files, durations are numbers in the unit that ends the key's name.
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
    /// Payload bytes of a message, its header of 24 bytes included, at most 1 MiB.
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

fn connect_timeout() -> Duration {
    Duration::from_secs(10)
}

fn drain_timeout() -> Duration {
    Duration::from_secs(30)
}

/// A value of [`SendConfig`] that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The receiver's port is 0.
    #[error("receiver {0}: port 0 cannot be connected to; give the port the receiver listens on")]
    Port(SocketAddr),
    /// The number of streams is out of range.
    #[error("{0} streams: give 1 to 65535, a pair of addresses has no more ports")]
    Streams(usize),
    /// The message size is out of range.
    #[error(
        "message size {0} B: give {min} to {MAX_SIZE} B, the header alone takes {min} B",
        min = Message::HEADER_LEN
    )]
    Size(usize),
    /// The inter-transmission time is too short.
    #[error("inter-transmission time {0:?}: give at least 1 us")]
    Itt(Duration),
    /// The duration is 0.
    #[error("duration 0: give the time during which messages are to be sent")]
    Duration,
    /// A stream would carry more messages than can be numbered.
    #[error("{duration:?} at one message each {itt:?} is more than 1e9 messages a stream")]
    Messages {
        /// The duration asked for.
        duration: Duration,
        /// The inter-transmission time asked for.
        itt: Duration,
    },
    /// Some streams would start after the end.
    #[error(
        "ramp-up {ramp_up:?}: the last of {streams} streams would start after the end at \
         {duration:?}; shorten the ramp-up or lengthen the duration"
    )]
    RampUp {
        /// The time between two starts.
        ramp_up: Duration,
        /// The number of streams asked for.
        streams: usize,
        /// The duration asked for.
        duration: Duration,
    },
}

impl SendConfig {
    /// Finds the first value that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (itt, duration, streams) = (self.itt, self.duration, self.streams);
        if self.to.port() == 0 {
            return Err(ConfigError::Port(self.to));
        }
        if !(1..=65_535).contains(&streams) {
            return Err(ConfigError::Streams(streams));
        }
        if !(Message::HEADER_LEN..=MAX_SIZE as usize).contains(&self.size) {
            return Err(ConfigError::Size(self.size));
        }
        if itt < Duration::from_micros(1) {
            return Err(ConfigError::Itt(itt));
        }
        if duration.is_zero() {
            return Err(ConfigError::Duration);
        }
        if duration.div_duration_f64(itt) > 1e9 {
            return Err(ConfigError::Messages { duration, itt });
        }
        let ramp_up = self.ramp_up();
        if ramp_up.saturating_mul(streams as u32 - 1) >= duration {
            return Err(ConfigError::RampUp {
                ramp_up,
                streams,
                duration,
            });
        }
        Ok(())
    }

    /// Time between the starts of two streams.
    fn ramp_up(&self) -> Duration {
        self.ramp_up.unwrap_or(self.itt / self.streams as u32)
    }

    /// When the messages of `stream` are due.
    pub fn schedule(&self, stream: u32) -> Schedule {
        let start = self.ramp_up().saturating_mul(stream);
        Schedule::new(
            self.seed,
            stream,
            (self.itt, self.itt_sd),
            (start, self.duration),
        )
    }
}
