//! What to send: groups of streams that are alike.

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

/// All that one sender sends.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// The receiver.
    pub to: SocketAddr,
    /// Streams that are alike; their numbers go on from group to group.
    pub groups: Vec<Group>,
    /// How long messages fall due after the barrier has opened; `None` until every stream has sent
    /// all it has to.
    pub duration: Option<Duration>,
    /// Seed of times, sizes and content.
    pub seed: u64,
    /// Threads among which the streams are dealt out, 1 to 64.
    pub threads: usize,
    /// Keep a record of every answer.
    pub records: bool,
    /// Number of the first stream, where several senders' streams are to be told apart.
    pub first_stream: u32,
    /// Source port of the first stream; each next one has the next port. `None` leaves the choice
    /// to the kernel.
    pub source_port: Option<u16>,
    /// How long all connections together may take to establish.
    pub connect_timeout: Duration,
    /// Send on the streams that connect in time, and report the others as failed; else sending
    /// fails unless all connect.
    pub partly: bool,
    /// How long data still queued and the receiver's closing may take after the last message.
    pub drain_timeout: Duration,
}

impl Traffic {
    /// One group, and else as [`Traffic::of`].
    pub fn new(to: SocketAddr, group: Group) -> Self {
        Self::of(to, vec![group])
    }

    /// One thread, these groups, 10 s to connect and 30 s for the last bytes.
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

    /// Streams of all groups together.
    pub fn streams(&self) -> usize {
        self.groups.iter().map(|group| group.streams).sum()
    }

    /// Whether any of them sends datagrams.
    pub fn has_datagrams(&self) -> bool {
        let mut kinds = self.groups.iter().map(|group| &group.kind);
        kinds.any(|kind| matches!(kind, Kind::Datagrams { .. }))
    }

    /// From when on no message falls due, after the barrier has opened, if there is such a time.
    pub(crate) fn end(&self) -> Option<Duration> {
        let later = |end: Duration, group: &Group| Some(end.max(group.end(self.duration)?));
        self.groups.iter().try_fold(Duration::ZERO, later)
    }

    /// Finds the first value that cannot be.
    ///
    /// # Errors
    /// Which, and what may stand there.
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

/// How much later than the one before each stream of a group starts (thesis, section 3.3.5).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RampUp {
    /// The mean inter-transmission time divided by the number of streams: the starts are spread
    /// over one such time. Greedy streams and those on a common tick all start at once.
    Spread,
    /// Always the same.
    Fixed(Duration),
    /// From a normal distribution; what would be negative is 0.
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

    /// The starts of a group's streams in nanoseconds after the first one's, without end. `spread`
    /// is what [`RampUp::Spread`] stands for.
    fn starts(self, spread: Duration, seed: u64) -> impl Iterator<Item = u64> {
        const RAMP_UP: u64 = 0x7261_6d70;
        let (mean, sd) = match self {
            Self::Spread => (spread, Duration::ZERO),
            Self::Fixed(time) => (time, Duration::ZERO),
            Self::Normal { mean, sd } => (mean, sd),
        };
        let (mean, sd) = (ns(mean), ns(sd) as f64);
        let mut draws = Pcg64::seed_from_u64(mix(seed ^ RAMP_UP));
        std::iter::successors(Some(0u64), move |start| {
            let standard: f64 = match sd > 0.0 {
                true => StandardNormal.sample(&mut draws),
                false => 0.0,
            };
            let step = (mean as f64 + sd * standard).max(0.0);
            Some(start.saturating_add(step as u64))
        })
    }
}

/// What the sender asks of TCP for its connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketOptions {
    /// Nagle's algorithm: true holds small segments back while others are unacknowledged. Off
    /// (`TCP_NODELAY`) unless asked for.
    pub nagle: bool,
    /// Linear time-outs for thin streams (`TCP_THIN_LINEAR_TIMEOUTS`, option 16, Linux 2.6.34;
    /// LCN 2008 section III): the first six time-outs of a thin stream do not back off.
    pub linear_timeouts: bool,
    /// Congestion control; `None` leaves the host's default.
    pub congestion: Option<String>,
    /// Asks pillion for bundling, or declines it; `None` leaves it to pillion's rules
    /// (`PILLION_BUNDLE`, docs/socket-option.md). Without a pillion at work either is an error.
    pub pillion: Option<bool>,
    /// Previous segments in a bundle at most, 0 as many as pillion's rules allow
    /// (`PILLION_MAX_PACKETS`).
    pub max_packets: Option<u32>,
}

/// A value of [`Traffic`] that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The receiver's port is 0.
    #[error("receiver {0}: port 0 cannot be connected to; give the port the receiver listens on")]
    Port(SocketAddr),
    /// The number of streams is out of range.
    #[error("{0} streams: give 1 to 65535, a pair of addresses has no more ports")]
    Streams(usize),
    /// The source ports are out of range.
    #[error("source ports from {port} on, for {streams} streams: ports are 1 to 65535")]
    SourcePorts {
        /// The first stream's.
        port: u16,
        /// The number of streams asked for.
        streams: usize,
    },
    /// The number of threads is out of range.
    #[error("{0} threads: give 1 to 64")]
    Threads(usize),
    /// The message size is out of range.
    #[error("message size {0} B: give 1 to {MAX_SIZE} B")]
    Size(f64),
    /// The size of datagrams is out of range.
    #[error("datagrams of {0} B: give {least} to {most} B", least = Datagram::LEN, most = Datagram::MAX_SIZE)]
    DatagramSize(u32),
    /// The rate of datagrams is none, or more than one each microsecond.
    #[error("{rate} bit/s in datagrams of {size} B: give at least 1 us for each")]
    Rate {
        /// The size asked for.
        size: u32,
        /// The rate asked for, in bits per second.
        rate: u64,
    },
    /// The size of messages, the inter-transmission time or the time to think is none.
    #[error("{what}: {error}")]
    Distribution {
        /// What was to be drawn.
        what: &'static str,
        /// Why it cannot be.
        error: DistributionError,
    },
    /// The inter-transmission time is too short.
    #[error("inter-transmission time {0:?}: give at least 1 us, which is 0.001 ms")]
    Itt(Duration),
    /// The speed of a replay is not above 0.
    #[error("speed {0}: give one above 0; 1 keeps the time as it was, 2 halves it")]
    Speed(f64),
    /// A replay without a write.
    #[error("nothing to replay: the list of writes is empty")]
    NoWrites,
    /// The duration is 0.
    #[error("duration 0: give the time during which messages are to be sent")]
    Duration,
    /// Neither a duration nor a number of messages.
    #[error("without an end: give a duration, or how many messages each stream sends")]
    Endless,
    /// No message at all.
    #[error("0 messages: give how many each stream sends, at least 1")]
    NoMessages,
    /// A stream would carry more messages than can be numbered.
    #[error("{duration:?} at one message each {itt:?} is more than 1e9 messages a stream")]
    Messages {
        /// The duration asked for.
        duration: Duration,
        /// The inter-transmission time asked for.
        itt: Duration,
    },
    /// The mean or deviation of the ramp-up cannot be.
    #[error("ramp-up {0} ms: give 0 or more, and at most a day")]
    RampUpTime(f64),
    /// A group would start after the end.
    #[error("start {start:?}: the end is at {duration:?}; start earlier or lengthen the duration")]
    Start {
        /// The group's start.
        start: Duration,
        /// The duration asked for.
        duration: Duration,
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_fixed_ramp_up_is_a_beat() {
        let starts: Vec<u64> = RampUp::Fixed(100 * MS).starts(MS, 1).take(3).collect();
        assert_eq!(starts, [0, 100_000_000, 200_000_000]);
        let starts: Vec<u64> = RampUp::Spread.starts(MS, 1).take(3).collect();
        assert_eq!(starts, [0, 1_000_000, 2_000_000]);
    }

    #[test]
    fn a_normal_ramp_up_has_its_mean_and_deviation_and_follows_the_seed() {
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
