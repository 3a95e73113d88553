use std::net::SocketAddr;
use std::time::Duration;

use pillion_path::{Direction, Loss, PathConfig};
use pillion_traffic::SendConfig;
use serde::Serialize;

use crate::Error;

/// How long connecting may take: lost SYNs are retransmitted after 1, 3, 7 and 15 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the last bytes may take: retransmissions back off, too.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// A group of thin streams, and the path that it has to itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupConfig {
    /// Number of streams in the group.
    pub streams: usize,
    /// Payload of a message in bytes.
    pub size_bytes: usize,
    /// Mean inter-transmission time in milliseconds.
    pub itt_ms: f64,
    /// Standard deviation of the inter-transmission time in milliseconds.
    pub itt_sd_ms: f64,
    /// Round-trip time in milliseconds, half of it in each direction.
    pub rtt_ms: f64,
    /// Share of packets lost in the data direction, 0 to 1.
    pub loss: f64,
    /// Seconds of sending.
    pub duration_s: f64,
    /// Rate of the path in bits per second; `None` for no limit.
    pub rate_bps: Option<u64>,
    /// Packets that may wait where the path has a rate.
    pub queue_packets: usize,
    /// Congestion control of all streams.
    pub congestion: String,
    /// Seed of losses and inter-transmission times.
    pub seed: u64,
    /// Options of `pillion run`; `None` for plain TCP.
    pub bundling: Option<Vec<String>>,
}

impl GroupConfig {
    /// The group's path.
    #[must_use]
    pub fn path(&self) -> PathConfig {
        // Not a duration: one that cannot be is left for the path to refuse.
        let delay = Duration::try_from_secs_f64(self.rtt_ms / 2e3).unwrap_or(Duration::MAX);
        let direction = |loss| Direction {
            rate_bps: self.rate_bps,
            queue_packets: self.queue_packets,
            loss: Loss::Uniform(loss),
            ..Direction::delayed(delay)
        };
        PathConfig {
            forward: direction(self.loss),
            backward: direction(0.0),
            seed: self.seed,
        }
    }

    /// The traffic of the group's sender, to this address.
    fn traffic(&self, to: SocketAddr) -> SendConfig {
        let ms = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX);
        SendConfig {
            to,
            streams: self.streams,
            itt: ms(self.itt_ms),
            itt_sd: ms(self.itt_sd_ms),
            size: self.size_bytes,
            duration: ms(self.duration_s * 1e3),
            ramp_up: None,
            congestion: Some(self.congestion.clone()),
            seed: self.seed,
            connect_timeout: CONNECT_TIMEOUT,
            drain_timeout: DRAIN_TIMEOUT,
        }
    }

    /// Finds the first value of the configuration that cannot be.
    ///
    /// # Errors
    /// [`Error::PathConfig`] or [`Error::Traffic`].
    pub fn validate(&self) -> Result<(), Error> {
        self.path().validate().map_err(Error::PathConfig)?;
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 1));
        Ok(self.traffic(anywhere).validate()?)
    }

    /// Arguments of `pillion traffic` for the group's sender.
    pub(super) fn sender(&self, to: SocketAddr) -> Vec<String> {
        let traffic = self.traffic(to);
        let fixed = ["traffic", "send", "--json", "--to"].map(String::from);
        let mut arguments = Vec::from(fixed);
        arguments.push(to.to_string());
        let options = [
            ("--streams", traffic.streams.to_string()),
            ("--itt", format!("{}:{}", self.itt_ms, self.itt_sd_ms)),
            ("--size", traffic.size.to_string()),
            ("--duration", self.duration_s.to_string()),
            ("--congestion", self.congestion.clone()),
            ("--seed", traffic.seed.to_string()),
            (
                "--connect-timeout",
                traffic.connect_timeout.as_secs().to_string(),
            ),
            (
                "--drain-timeout",
                traffic.drain_timeout.as_secs().to_string(),
            ),
        ];
        for (name, value) in options {
            arguments.extend([name.to_owned(), value]);
        }
        arguments
    }
}
