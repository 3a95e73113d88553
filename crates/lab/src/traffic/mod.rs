//! Traffic: generators of thin and other streams, and the receiver that verifies every byte.
//!
//! A [`Sender`] keeps many TCP connections on a few threads and hands each a message whenever it is
//! due, or TCP takes more, or an answer has come: [`Kind`]. Datagrams it sends without any. A [`Receiver`] checks every byte and
//! measures each message's delivery latency: from the moment the application handed it over at the
//! sender to the moment a read returned its last byte. Both ends read `CLOCK_MONOTONIC`, so they
//! must run on one host; network namespaces are fine, time namespaces are not. What comes back is
//! verified just so, and gives round-trip latency by the sender's clock alone.
//!
//! The format on the wire is described in [`wire`].

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
pub use latency::{Measured, Quantiles, Record};
pub use list::{ListError, WRITES_HEADING, Write, read_writes};
pub use plan::{ConfigError, Group, Kind, RampUp, SocketOptions, Traffic};
pub use profile::{BelowOne, Profile, Sizes, Time, Times, profiles};
pub use receive::{
    Answering, Fault, FaultKind, Manner, Reading, ReceiveConfig, ReceiveError, ReceiveReport,
    Received, Receiver, StreamReceived,
};
pub use send::{
    Connected, GroupSent, SendError, SendLateness, SendReport, Sender, Sent, StreamSent,
};
pub use socket_info::{Bundled, TcpInfo};
