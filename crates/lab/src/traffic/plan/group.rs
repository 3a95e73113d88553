use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64;

use super::{ConfigError, RampUp, SocketOptions};
use crate::traffic::distribution::Distribution;
use crate::traffic::latency::ns;
use crate::traffic::list::Write;
use crate::traffic::wire::{Datagram, MAX_SIZE, mix};

/// A group of identical streams.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The group's name in reports.
    pub name: String,
    /// Number of TCP connections or UDP streams.
    pub streams: usize,
    /// The behaviour of each stream.
    pub kind: Kind,
    /// Messages per stream; `None` to send for the whole duration.
    pub messages: Option<u64>,
    /// Start of the group's first stream, counted from the opening of the barrier.
    pub start: Duration,
    /// Maximum time from the group's start during which messages are due; `None` for no own limit.
    pub duration: Option<Duration>,
    /// Starts of the group's other streams.
    pub ramp_up: RampUp,
    /// Whether all connections are made together at the group's start, instead of before the
    /// barrier opens. The streams start later by the time this takes, at most
    /// [`connect_timeout`](super::Traffic::connect_timeout). A stream that connects even later
    /// starts then.
    pub connects_at_start: bool,
    /// Whether a stream connects again, from the same port, when its connection is not answered.
    pub reconnect: bool,
    /// The socket options.
    pub socket: SocketOptions,
}

/// When a stream sends, and how much. Times are in milliseconds, sizes in bytes of payload.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A message after each inter-transmission time, regardless of TCP's state.
    Thin {
        /// The time between two messages.
        itt: Distribution,
        /// The size of a message.
        size: Distribution,
    },
    /// Messages of constant size at constant intervals.
    Isochronous {
        /// The interval.
        itt: Duration,
        /// The size.
        size: u32,
    },
    /// A message on every stream of the group at each tick, like a game server.
    Burst {
        /// The time between two ticks.
        tick: Duration,
        /// The size of a message.
        size: Distribution,
    },
    /// As much as TCP accepts.
    Greedy {
        /// Bytes of a write.
        write: u32,
    },
    /// A message, its response, a think time, and the next message. Minimum sizes allow for a
    /// response: 50 B for the first message, about 7 B for the others.
    RequestResponse {
        /// The time from a response's last byte to the next message.
        think: Distribution,
        /// The size of a message.
        size: Distribution,
        /// The size of a response.
        answer: u32,
    },
    /// A connection that opens at the stream's start, writes all its messages immediately and
    /// closes. It has one message unless [`Group::messages`] is set.
    Flow {
        /// The time between the starts of two flows.
        arrival: Distribution,
        /// The size of a message; the last one includes the few bytes that end the stream.
        size: Distribution,
    },
    /// The writes of a list, once.
    Replay {
        /// The list.
        writes: Arc<[Write]>,
        /// Divisor of the times.
        speed: f64,
    },
    /// UDP datagrams at a constant rate, regardless of losses.
    Datagrams {
        /// Payload of a datagram: 44 to 65507 B.
        size: u32,
        /// Payload in bits per second.
        rate: u64,
    },
}

/// Returns the nanoseconds between two datagrams of this size at `rate` bits per second.
pub(crate) fn gap_ns(size: u32, rate: u64) -> f64 {
    f64::from(size) * 8e9 / rate as f64
}

/// Maximum messages of a stream, limited by the sequence number.
pub(crate) const MAX_MESSAGES: u64 = 1_000_000_000;

impl Group {
    /// Creates a group of one stream for the whole duration, with Nagle's algorithm off.
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self {
            name: name.into(),
            streams: 1,
            kind,
            messages: None,
            start: Duration::ZERO,
            duration: None,
            ramp_up: RampUp::Spread,
            connects_at_start: false,
            reconnect: false,
            socket: SocketOptions::default(),
        }
    }

    /// Returns the first invalid value.
    ///
    /// # Errors
    /// The value and its valid range.
    pub fn validate(&self, duration: Option<Duration>, seed: u64) -> Result<(), ConfigError> {
        if !(1..=65_535).contains(&self.streams) {
            return Err(ConfigError::Streams(self.streams));
        }
        self.kind.validate()?;
        if self.messages == Some(0) {
            return Err(ConfigError::NoMessages);
        }
        self.ramp_up.validate()?;
        if self.duration.is_some_and(|duration| duration.is_zero()) {
            return Err(ConfigError::Duration);
        }
        if let Some(duration) = duration.filter(|duration| self.start >= *duration) {
            let start = self.start;
            return Err(ConfigError::Start { start, duration });
        }
        let has_end = matches!(self.kind, Kind::Replay { .. } | Kind::Flow { .. });
        let Some(duration) = self.end(duration) else {
            let ends = self.messages.is_some() || has_end;
            return if ends {
                Ok(())
            } else {
                Err(ConfigError::Endless)
            };
        };
        let itt = self.kind.mean_itt();
        if self.messages.is_none()
            && !has_end
            && itt.is_some_and(|itt| exceeds_limit(duration, itt))
        {
            let itt = itt.unwrap_or_default();
            return Err(ConfigError::Messages { duration, itt });
        }
        if let Kind::Flow { .. } = self.kind {
            return Ok(());
        }
        let last = self.starts(seed).nth(self.streams - 1).unwrap_or(u64::MAX);
        if u128::from(last) >= duration.as_nanos() {
            let since = Duration::from_nanos(last).saturating_sub(self.start);
            return Err(ConfigError::RampUp {
                ramp_up: since / (self.streams as u32 - 1).max(1),
                streams: self.streams,
                duration,
            });
        }
        Ok(())
    }

    /// Returns whether the connections are made before the barrier opens.
    pub(crate) fn connects_before_barrier(&self) -> bool {
        let at_start = self.connects_at_start
            || matches!(self.kind, Kind::Flow { .. } | Kind::Datagrams { .. });
        !at_start
    }

    /// Returns the time from which no message of the group is due, if any; `duration` is the limit
    /// of all groups.
    #[must_use]
    pub fn end(&self, duration: Option<Duration>) -> Option<Duration> {
        let own = self.duration.map(|own| self.start.saturating_add(own));
        own.into_iter().chain(duration).min()
    }

    /// Returns the number of streams, without flows that would start at the end or later;
    /// `duration` is the limit of all groups.
    pub(crate) fn streams_until(&self, duration: Option<Duration>, seed: u64) -> usize {
        let (Kind::Flow { .. }, Some(end)) = (&self.kind, self.end(duration)) else {
            return self.streams;
        };
        let starts = self.starts(seed).take(self.streams);
        starts.take_while(|start| *start < ns(end)).count()
    }

    /// Returns the starts of the streams, in nanoseconds after the barrier's opening; an infinite
    /// iterator.
    pub(crate) fn starts(&self, seed: u64) -> Box<dyn Iterator<Item = u64> + '_> {
        let start = ns(self.start);
        if let Kind::Flow { arrival, .. } = &self.kind {
            const ARRIVALS: u64 = 0x6172_7269;
            let mut rng = Pcg64::seed_from_u64(mix(seed ^ ARRIVALS));
            let next = move |at: &f64| Some(at + arrival.sample(&mut rng) * 1e6);
            let starts = std::iter::successors(Some(0.0), next);
            return Box::new(starts.map(move |since| start.saturating_add(since as u64)));
        }
        let spread = match self.kind {
            Kind::Burst { .. } => Duration::ZERO,
            _ => self.kind.mean_itt().unwrap_or_default() / self.streams.max(1) as u32,
        };
        let starts = self.ramp_up.starts(spread, seed);
        Box::new(starts.map(move |since| start.saturating_add(since)))
    }
}

impl Kind {
    /// Returns the kind's name in files and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Thin { .. } => "thin",
            Self::Isochronous { .. } => "isochronous",
            Self::Burst { .. } => "burst",
            Self::Greedy { .. } => "greedy",
            Self::RequestResponse { .. } => "request-response",
            Self::Flow { .. } => "flow",
            Self::Replay { .. } => "replay",
            Self::Datagrams { .. } => "datagrams",
        }
    }

    /// Returns the mean time between two messages, if it does not depend on the network.
    fn mean_itt(&self) -> Option<Duration> {
        match self {
            Self::Thin { itt, .. } => Some(ms(itt.mean())),
            Self::Isochronous { itt, .. } => Some(*itt),
            Self::Burst { tick, .. } => Some(*tick),
            Self::Datagrams { size, rate } => Some(ms(gap_ns(*size, *rate) / 1e6)),
            Self::Greedy { .. }
            | Self::RequestResponse { .. }
            | Self::Flow { .. }
            | Self::Replay { .. } => None,
        }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        if let Some(itt) = self
            .mean_itt()
            .filter(|itt| *itt < Duration::from_micros(1))
            .filter(|_| !matches!(self, Self::Datagrams { .. }))
        {
            return Err(ConfigError::Itt(itt));
        }
        match self {
            Self::Thin { itt, size } => {
                validate_distribution("inter-transmission time", itt)?;
                validate_size(size)
            }
            Self::Isochronous { size, .. } => validate_fixed_size(*size),
            Self::Burst { size, .. } => validate_size(size),
            Self::Greedy { write } => validate_fixed_size(*write),
            Self::RequestResponse {
                think,
                size,
                answer,
            } => {
                validate_distribution("time to think", think)?;
                validate_size(size)?;
                validate_fixed_size(*answer)
            }
            Self::Flow { arrival, size } => {
                validate_distribution("time between flows", arrival)?;
                validate_size(size)
            }
            Self::Replay { writes, speed } => {
                if writes.is_empty() {
                    return Err(ConfigError::NoWrites);
                }
                if !(*speed > 0.0 && speed.is_finite()) {
                    return Err(ConfigError::Speed(*speed));
                }
                writes
                    .iter()
                    .try_for_each(|write| validate_fixed_size(write.size))
            }
            Self::Datagrams { size, rate } => datagrams(*size, *rate),
        }
    }
}

/// Converts milliseconds from a distribution, including infinite and negative values.
fn ms(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or(if ms > 0.0 {
        Duration::MAX
    } else {
        Duration::ZERO
    })
}

fn exceeds_limit(duration: Duration, itt: Duration) -> bool {
    duration.div_duration_f64(itt) > MAX_MESSAGES as f64
}

fn validate_distribution(
    what: &'static str,
    distribution: &Distribution,
) -> Result<(), ConfigError> {
    let to_error = |error| ConfigError::Distribution { what, error };
    distribution.validate().map_err(to_error)
}

fn validate_size(size: &Distribution) -> Result<(), ConfigError> {
    let mean = size.mean();
    if !(1.0..=f64::from(MAX_SIZE)).contains(&mean) {
        return Err(ConfigError::Size(mean));
    }
    validate_distribution("message size", size)
}

fn datagrams(size: u32, rate: u64) -> Result<(), ConfigError> {
    if !(Datagram::LEN..=Datagram::MAX_SIZE).contains(&(size as usize)) {
        return Err(ConfigError::DatagramSize(size));
    }
    match rate > 0 && gap_ns(size, rate) >= 1e3 {
        true => Ok(()),
        false => Err(ConfigError::Rate { size, rate }),
    }
}

fn validate_fixed_size(size: u32) -> Result<(), ConfigError> {
    match size {
        1..=MAX_SIZE => Ok(()),
        _ => Err(ConfigError::Size(size.into())),
    }
}
