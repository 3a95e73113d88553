//! What to send: groups of streams that are alike.

mod error;
mod group;
mod ramp_up;
mod socket;

use std::net::SocketAddr;
use std::time::Duration;

pub use error::ConfigError;
pub use group::{Group, Kind};
pub(crate) use group::{MAX_MESSAGES, gap_ns};
pub use ramp_up::RampUp;
pub use socket::SocketOptions;

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
