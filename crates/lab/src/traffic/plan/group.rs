use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64;

use super::{ConfigError, RampUp, SocketOptions};
use crate::traffic::distribution::Distribution;
use crate::traffic::latency::ns;
use crate::traffic::list::Write;
use crate::traffic::wire::{Datagram, MAX_SIZE, mix};

/// Streams that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// What reports call it.
    pub name: String,
    /// Number of TCP connections, or of UDP's streams.
    pub streams: usize,
    /// What each of them does.
    pub kind: Kind,
    /// Messages of each stream; `None` sends for the whole duration.
    pub messages: Option<u64>,
    /// When the group's first stream starts, after the barrier has opened.
    pub start: Duration,
    /// How long its messages fall due after that, at most; `None` sets no limit of its own.
    pub duration: Option<Duration>,
    /// When its others do.
    pub ramp_up: RampUp,
    /// Whether its connections are made at its start, all at once, and not before the barrier opens.
    /// Its streams start so much later than they would as that takes, at most
    /// [`connect_timeout`](super::Traffic::connect_timeout), and one that is not connected by then
    /// when it is.
    pub connects_at_start: bool,
    /// How its sockets are set.
    pub socket: SocketOptions,
}

/// When a stream sends, and how much at a time. Times are in milliseconds, sizes in bytes of
/// payload.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A message whenever an inter-transmission time is over, whatever TCP does.
    Thin {
        /// The time between two messages.
        itt: Distribution,
        /// The size of a message.
        size: Distribution,
    },
    /// A message of always the same size on a fixed beat.
    Isochronous {
        /// The beat.
        itt: Duration,
        /// The size.
        size: u32,
    },
    /// A message of every stream of the group at each tick, as a game server sends.
    Burst {
        /// The time between two ticks.
        tick: Duration,
        /// The size of a message.
        size: Distribution,
    },
    /// As much as TCP takes.
    Greedy {
        /// Bytes of a write.
        write: u32,
    },
    /// A message, its answer, a time to think, and the next one. So that it can be answered, the
    /// first has at least 50 B, and each other one 7 B or so.
    RequestResponse {
        /// The time from an answer's last byte to the next message.
        think: Distribution,
        /// The size of a message.
        size: Distribution,
        /// The size of an answer.
        answer: u32,
    },
    /// A connection that opens when its stream starts, has all its messages written at once, one
    /// unless [`Group::messages`] says otherwise, and closes.
    Flow {
        /// The time between the starts of two flows.
        arrival: Distribution,
        /// The size of a message; that of the last one includes the few bytes that end the stream.
        size: Distribution,
    },
    /// The writes of a list, once.
    Replay {
        /// The list.
        writes: Arc<[Write]>,
        /// What times are divided by.
        speed: f64,
    },
    /// UDP datagrams at a rate, whatever becomes of them.
    Datagrams {
        /// Payload of a datagram: 44 to 65507 B.
        size: u32,
        /// Payload in bits per second.
        rate: u64,
    },
}

/// The time from a datagram of this size to the next, in nanoseconds, at so many bits per second.
pub(crate) fn gap_ns(size: u32, rate: u64) -> f64 {
    f64::from(size) * 8e9 / rate as f64
}

/// More cannot be numbered.
pub(crate) const MAX_MESSAGES: u64 = 1_000_000_000;

impl Group {
    /// One stream of this kind, for the whole duration, with Nagle's algorithm off.
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
            socket: SocketOptions::default(),
        }
    }

    /// Finds the first value that cannot be.
    ///
    /// # Errors
    /// Which, and what may stand there.
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
        if self.messages.is_none() && !has_end && itt.is_some_and(|itt| too_many(duration, itt)) {
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

    /// Whether its connections are made before the barrier opens.
    pub(crate) fn connects_first(&self) -> bool {
        let at_start = self.connects_at_start
            || matches!(self.kind, Kind::Flow { .. } | Kind::Datagrams { .. });
        !at_start
    }

    /// From when on none of its messages falls due, if there is such a time, where `duration` is
    /// that of all groups.
    #[must_use]
    pub fn end(&self, duration: Option<Duration>) -> Option<Duration> {
        let own = self.duration.map(|own| self.start.saturating_add(own));
        own.into_iter().chain(duration).min()
    }

    /// Its streams, where `duration` is that of all groups: flows that would start at the end or
    /// later are none.
    pub(crate) fn streams_until(&self, duration: Option<Duration>, seed: u64) -> usize {
        let (Kind::Flow { .. }, Some(end)) = (&self.kind, self.end(duration)) else {
            return self.streams;
        };
        let starts = self.starts(seed).take(self.streams);
        starts.take_while(|start| *start < ns(end)).count()
    }

    /// When its streams start, in nanoseconds after the barrier has opened, without end.
    pub(crate) fn starts(&self, seed: u64) -> Box<dyn Iterator<Item = u64> + '_> {
        let start = ns(self.start);
        if let Kind::Flow { arrival, .. } = &self.kind {
            const ARRIVALS: u64 = 0x6172_7269;
            let mut draws = Pcg64::seed_from_u64(mix(seed ^ ARRIVALS));
            let next = move |at: &f64| Some(at + arrival.draw(&mut draws) * 1e6);
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
    /// The kind's name in files and reports.
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

    /// The time between two messages, where that does not depend on the network.
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
                drawn("inter-transmission time", itt)?;
                drawn_size(size)
            }
            Self::Isochronous { size, .. } => fixed_size(*size),
            Self::Burst { size, .. } => drawn_size(size),
            Self::Greedy { write } => fixed_size(*write),
            Self::RequestResponse {
                think,
                size,
                answer,
            } => {
                drawn("time to think", think)?;
                drawn_size(size)?;
                fixed_size(*answer)
            }
            Self::Flow { arrival, size } => {
                drawn("time between flows", arrival)?;
                drawn_size(size)
            }
            Self::Replay { writes, speed } => {
                if writes.is_empty() {
                    return Err(ConfigError::NoWrites);
                }
                if !(*speed > 0.0 && speed.is_finite()) {
                    return Err(ConfigError::Speed(*speed));
                }
                writes.iter().try_for_each(|write| fixed_size(write.size))
            }
            Self::Datagrams { size, rate } => datagrams(*size, *rate),
        }
    }
}

/// A number of milliseconds that some distribution gave, whatever it is.
fn ms(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or(if ms > 0.0 {
        Duration::MAX
    } else {
        Duration::ZERO
    })
}

fn too_many(duration: Duration, itt: Duration) -> bool {
    duration.div_duration_f64(itt) > MAX_MESSAGES as f64
}

fn drawn(what: &'static str, distribution: &Distribution) -> Result<(), ConfigError> {
    let told = |error| ConfigError::Distribution { what, error };
    distribution.validate().map_err(told)
}

fn drawn_size(size: &Distribution) -> Result<(), ConfigError> {
    let mean = size.mean();
    if !(1.0..=f64::from(MAX_SIZE)).contains(&mean) {
        return Err(ConfigError::Size(mean));
    }
    drawn("message size", size)
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

fn fixed_size(size: u32) -> Result<(), ConfigError> {
    match size {
        1..=MAX_SIZE => Ok(()),
        _ => Err(ConfigError::Size(size.into())),
    }
}
