use std::net::SocketAddr;
use std::time::Duration;

use crate::traffic::distribution::DistributionError;
use crate::traffic::wire::{Datagram, MAX_SIZE};

/// A value of [`super::Traffic`] that cannot be.
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
