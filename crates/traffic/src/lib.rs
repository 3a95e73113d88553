//! Thin-stream traffic: generators and the receiver that verifies every byte.
//!
//! A [`Sender`] keeps many TCP connections on one thread and hands each a small message once an
//! inter-transmission time (ITT). A [`Receiver`] checks the content of every message and measures
//! its delivery latency: from the moment the application handed the message over at the sender to
//! the moment a read returned its last byte. Both ends read `CLOCK_MONOTONIC`, so they must run on
//! one host; network namespaces are fine, time namespaces are not.
//!
//! The format on the wire is described in [`wire`].

mod clock;
mod durations;
mod quantiles;
mod receive;
mod schedule;
mod send;
mod tcp_info;
pub mod wire;

pub use quantiles::Quantiles;
pub use receive::{
    Fault, FaultKind, ReceiveConfig, ReceiveError, ReceiveReport, Received, Receiver, Record,
    StreamReceived, write_csv,
};
pub use schedule::Schedule;
pub use send::{ConfigError, SendConfig, SendError, SendLateness, SendReport, Sender, StreamSent};
pub use tcp_info::TcpInfo;
