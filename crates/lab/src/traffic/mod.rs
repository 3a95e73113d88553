//! Traffic: generators of thin and other streams, and the receiver that verifies every byte.
//!
//! A [`Sender`] handles many TCP connections on a few threads. It writes a message on each when the
//! message is due, TCP has room, or a response has arrived, depending on the [`Kind`]. It also
//! sends UDP datagrams. A [`Receiver`] checks every byte and measures each message's delivery
//! latency: from the application's write at the sender to the end of the read that returned its
//! last byte. Both ends read `CLOCK_MONOTONIC`, so they must run on one host; network namespaces
//! are fine, time namespaces are not. The sender verifies responses in the same way, and measures
//! round-trip latency by its own clock.
//!
//! The module [`wire`] describes the wire format.

mod distribution;
mod latency;
mod list;
mod plan;
mod poller;
mod profile;
mod receive;
mod send;
mod socket_info;
pub mod wire;

pub use distribution::{Distribution, DistributionError, Table, TableError};
pub use latency::{LatencyKind, Quantiles, Record};
pub(crate) use list::CsvList;
pub use list::{ListError, WRITES_HEADING, Write, read_writes};
pub use plan::{ConfigError, Group, Kind, RampUp, SocketOptions, Traffic};
pub use profile::{BelowOne, Profile, Sizes, Time, Times, profiles};
pub use receive::{
    Fault, FaultKind, ReadMode, ReceiveBehaviour, ReceiveConfig, ReceiveError, ReceiveReport,
    ReceiveResult, Receiver, ResponseMode, StreamReceiveReport,
};
pub use send::{
    ConnectedSender, GroupSendReport, SendError, SendLateness, SendReport, SendResult, Sender,
    StreamSendReport,
};
pub use socket_info::{BundlingStats, TcpInfo};
