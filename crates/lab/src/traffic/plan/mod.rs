//! The traffic to send: groups of identical streams.

mod group;

use std::net::SocketAddr;
use std::time::Duration;

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use crate::traffic::distribution::DistributionError;
use crate::traffic::latency::ns;
use crate::traffic::wire::{Datagram, MAX_SIZE, mix};

pub use group::{Group, Kind};
pub(crate) use group::{MAX_MESSAGES, gap_ns};

/// The traffic of one sender.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// The receiver.
    pub to: SocketAddr,
    /// Groups of streams; stream numbers continue from group to group.
    pub groups: Vec<Group>,
    /// Time after the barrier's opening during which messages are due; `None` until every stream
    /// has sent all its messages.
    pub duration: Option<Duration>,
    /// Seed of times, sizes and content.
    pub seed: u64,
    /// Number of threads that share the streams, 1 to 64.
    pub threads: usize,
    /// Store a record of every response.
    pub records: bool,
    /// Number of the first stream, which distinguishes the streams of several senders.
    pub first_stream: u32,
    /// Source port of the first stream; each further stream uses the next port. `None` leaves the
    /// choice to the kernel.
    pub source_port: Option<u16>,
    /// Time limit for establishing all connections.
    pub connect_timeout: Duration,
    /// If true, send on the streams that connect in time and report the others as failed. Otherwise
    /// sending fails unless all connect.
    pub partly: bool,
    /// Time limit after the last message, for queued data and the receiver's close.
    pub drain_timeout: Duration,
}

impl Traffic {
    /// Creates the traffic of one group, with the defaults of [`Traffic::of`].
    pub fn new(to: SocketAddr, group: Group) -> Self {
        Self::of(to, vec![group])
    }

    /// Creates traffic with one thread, 10 s to connect and 30 s for the last bytes.
    pub fn of(to: SocketAddr, groups: Vec<Group>) -> Self {
        Self {
            to,
            groups,
            duration: None,
            seed: 0,
            threads: 1,
            records: false,
            first_stream: 0,
            source_port: None,
            connect_timeout: Duration::from_secs(10),
            partly: false,
            drain_timeout: Duration::from_secs(30),
        }
    }

    /// Returns the number of streams of all groups.
    pub fn streams(&self) -> usize {
        self.groups.iter().map(|group| group.streams).sum()
    }

    /// Returns whether any group sends datagrams.
    pub fn has_datagrams(&self) -> bool {
        let mut kinds = self.groups.iter().map(|group| &group.kind);
        kinds.any(|kind| matches!(kind, Kind::Datagrams { .. }))
    }

    /// Returns the time after the barrier's opening from which no message is due, if any.
    pub(crate) fn end(&self) -> Option<Duration> {
        let later = |end: Duration, group: &Group| Some(end.max(group.end(self.duration)?));
        self.groups.iter().try_fold(Duration::ZERO, later)
    }

    /// Returns the first invalid value.
    ///
    /// # Errors
    /// The value and its valid range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.to.port() == 0 {
            return Err(ConfigError::Port(self.to));
        }
        let streams = self
            .groups
            .iter()
            .fold(0usize, |sum, g| sum.saturating_add(g.streams));
        if !(1..=65_535).contains(&streams) {
            return Err(ConfigError::Streams(streams));
        }
        if let Some(port) = self.source_port
            && (port == 0 || usize::from(port) + streams > 65_536)
        {
            return Err(ConfigError::SourcePorts { port, streams });
        }
        if !(1..=64).contains(&self.threads) {
            return Err(ConfigError::Threads(self.threads));
        }
        if self.duration.is_some_and(|duration| duration.is_zero()) {
            return Err(ConfigError::Duration);
        }
        let validate = |group: &Group| group.validate(self.duration, self.seed);
        self.groups.iter().try_for_each(validate)
    }
}

/// Delay between the starts of consecutive streams of a group (thesis, section 3.3.5).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RampUp {
    /// The mean inter-transmission time divided by the number of streams, so the starts are spread
    /// over one such time. Greedy streams and bursts start immediately.
    Spread,
    /// A constant delay.
    Fixed(Duration),
    /// Normal distribution; negative values become 0.
    Normal {
        /// Mean.
        mean: Duration,
        /// Standard deviation.
        sd: Duration,
    },
}

const DAY: Duration = Duration::from_secs(86_400);

impl RampUp {
    fn validate(self) -> Result<(), ConfigError> {
        let times = match self {
            Self::Spread => [Duration::ZERO; 2],
            Self::Fixed(time) => [time; 2],
            Self::Normal { mean, sd } => [mean, sd],
        };
        match times.into_iter().find(|time| *time > DAY) {
            Some(time) => Err(ConfigError::RampUpTime(time.as_secs_f64() * 1e3)),
            None => Ok(()),
        }
    }

    /// Returns the starts of the streams in nanoseconds after the first; an infinite iterator.
    /// `spread` is the delay of [`RampUp::Spread`].
    fn starts(self, spread: Duration, seed: u64) -> impl Iterator<Item = u64> {
        const RAMP_UP: u64 = 0x7261_6d70;
        let (mean, sd) = match self {
            Self::Spread => (spread, Duration::ZERO),
            Self::Fixed(time) => (time, Duration::ZERO),
            Self::Normal { mean, sd } => (mean, sd),
        };
        let (mean, sd) = (ns(mean), ns(sd) as f64);
        let mut rng = Pcg64::seed_from_u64(mix(seed ^ RAMP_UP));
        std::iter::successors(Some(0u64), move |start| {
            let standard: f64 = match sd > 0.0 {
                true => StandardNormal.sample(&mut rng),
                false => 0.0,
            };
            let step = (mean as f64 + sd * standard).max(0.0);
            Some(start.saturating_add(step as u64))
        })
    }
}

/// The sender's socket options.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketOptions {
    /// Nagle's algorithm: if true, small segments wait while others are unacknowledged. Off
    /// (`TCP_NODELAY`) by default.
    pub nagle: bool,
    /// Linear timeouts for thin streams (`TCP_THIN_LINEAR_TIMEOUTS`, option 16, Linux 2.6.34; LCN
    /// 2008 section III): the first six timeouts of a thin stream have no backoff.
    pub linear_timeouts: bool,
    /// Congestion control; `None` for the host's default.
    pub congestion: Option<String>,
    /// Requests bundling from pillion, or declines it; `None` leaves it to pillion's rules
    /// (`PILLION_BUNDLE`, docs/guides/socket-api.md). Without a running pillion, either value is an
    /// error.
    pub pillion: Option<bool>,
    /// Maximum previous segments in a bundle; 0 for as many as pillion's rules allow
    /// (`PILLION_MAX_PACKETS`).
    pub max_packets: Option<u32>,
    /// Retransmissions of an unanswered SYN before the connection fails (`TCP_SYNCNT`), 1 to 127;
    /// `None` for the host's (`net.ipv4.tcp_syn_retries`).
    pub syn_retries: Option<u8>,
}

/// An invalid value of [`Traffic`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The receiver's port is 0.
    #[error("invalid receiver {0}: port 0 cannot be connected to; use the receiver's port")]
    Port(SocketAddr),
    /// The number of streams is out of range.
    #[error("invalid number of streams {0}: expected 1 to 65535, the ports of a pair of addresses")]
    Streams(usize),
    /// The source ports are out of range.
    #[error("invalid source port {port} for {streams} streams: expected ports from 1 to 65535")]
    SourcePorts {
        /// The first stream's port.
        port: u16,
        /// The requested number of streams.
        streams: usize,
    },
    /// The number of threads is out of range.
    #[error("invalid number of threads {0}: expected 1 to 64")]
    Threads(usize),
    /// The message size is out of range.
    #[error("invalid message size {0} B: expected 1 to {MAX_SIZE} B")]
    Size(f64),
    /// The size of datagrams is out of range.
    #[error("invalid datagram size {0} B: expected {min} to {max} B", min = Datagram::LEN, max = Datagram::MAX_SIZE)]
    DatagramSize(u32),
    /// The rate of datagrams is 0, or more than one per microsecond.
    #[error("invalid rate {rate} bit/s for datagrams of {size} B: expected at most one per us")]
    Rate {
        /// The requested size.
        size: u32,
        /// The requested rate, in bits per second.
        rate: u64,
    },
    /// The message size, the inter-transmission time or the think time is invalid.
    #[error("{what}: {error}")]
    Distribution {
        /// The sampled value.
        what: &'static str,
        /// The reason.
        error: DistributionError,
    },
    /// The inter-transmission time is too short.
    #[error("invalid inter-transmission time {0:?}: expected at least 1 us, which is 0.001 ms")]
    Itt(Duration),
    /// The speed of a replay is not above 0.
    #[error(
        "invalid speed {0}: expected a number above 0; 1 keeps the original times, 2 halves them"
    )]
    Speed(f64),
    /// A replay without a write.
    #[error("nothing to replay: the list of writes is empty")]
    NoWrites,
    /// The duration is 0.
    #[error("invalid duration 0: expected the time during which messages are sent")]
    Duration,
    /// Neither a duration nor a number of messages.
    #[error("endless traffic: set a duration, or the number of messages per stream")]
    Endless,
    /// The number of messages is 0.
    #[error("invalid number of messages 0: expected at least 1 per stream")]
    NoMessages,
    /// A stream would send more messages than sequence numbers exist.
    #[error(
        "too many messages: {duration:?} with one message every {itt:?} exceeds 1e9 per stream"
    )]
    Messages {
        /// The requested duration.
        duration: Duration,
        /// The requested inter-transmission time.
        itt: Duration,
    },
    /// The mean or deviation of the ramp-up is out of range.
    #[error("invalid ramp-up {0} ms: expected 0 to 86400000 (a day)")]
    RampUpTime(f64),
    /// A group would start after the end.
    #[error(
        "invalid start {start:?}: the end is at {duration:?}; start earlier or extend the duration"
    )]
    Start {
        /// The group's start.
        start: Duration,
        /// The requested duration.
        duration: Duration,
    },
    /// Some streams would start after the end.
    #[error(
        "ramp-up {ramp_up:?}: the last of {streams} streams would start after the end at \
         {duration:?}; shorten the ramp-up or extend the duration"
    )]
    RampUp {
        /// The time between two starts.
        ramp_up: Duration,
        /// The requested number of streams.
        streams: usize,
        /// The requested duration.
        duration: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn fixed_ramp_up_has_constant_interval() {
        let starts: Vec<u64> = RampUp::Fixed(100 * MS).starts(MS, 1).take(3).collect();
        assert_eq!(starts, [0, 100_000_000, 200_000_000]);
        let starts: Vec<u64> = RampUp::Spread.starts(MS, 1).take(3).collect();
        assert_eq!(starts, [0, 1_000_000, 2_000_000]);
    }

    #[test]
    fn normal_ramp_up_matches_parameters_and_seed() {
        let ramp_up = RampUp::Normal {
            mean: 100 * MS,
            sd: 10 * MS,
        };
        let starts = |seed| -> Vec<u64> { ramp_up.starts(MS, seed).take(10_001).collect() };
        assert_eq!(starts(1), starts(1));
        assert_ne!(starts(1), starts(2));
        let steps: Vec<f64> = starts(1)
            .windows(2)
            .map(|s| (s[1] - s[0]) as f64 / 1e6)
            .collect();
        let mean = steps.iter().sum::<f64>() / 1e4;
        let variance = steps.iter().map(|step| (step - mean).powi(2)).sum::<f64>() / 1e4;
        // Four standard errors of the mean; about as many of the deviation.
        assert!(
            (mean - 100.0).abs() < 0.4 && (variance.sqrt() - 10.0).abs() < 0.3,
            "{mean}"
        );
    }
}
