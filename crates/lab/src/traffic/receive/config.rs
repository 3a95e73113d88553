use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where and what to receive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveConfig {
    /// Address to listen on; port 0 lets the kernel choose one.
    pub listen: SocketAddr,
    /// Finish when this many connections, at least 1, have closed, wrong ones included; `None`
    /// goes on until stopped.
    #[serde(default)]
    pub streams: Option<usize>,
    /// Receive UDP datagrams at the same port as well.
    #[serde(default)]
    pub datagrams: bool,
    /// Keep a record of every message (40 bytes each). The report's quantiles are then exact,
    /// otherwise good to three significant digits.
    #[serde(default)]
    pub records: bool,
}

/// What the receiving application does with what comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Manner {
    /// When it reads.
    pub reading: Reading,
    /// What it sends back.
    pub answering: Answering,
}

/// When the receiver reads what has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reading {
    /// At once.
    #[default]
    AtOnce,
    /// All that there is, so long after some of it could first be read.
    Late(Duration),
    /// At most so many bytes a second of each connection, at least 1.
    Rate(u64),
}

/// What the receiver sends back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Answering {
    /// What the sender asks for, which mostly is nothing.
    #[default]
    AsAsked,
    /// The very bytes that come, whatever the sender asks for.
    Echo,
    /// A message to each so many, at least 1, unless the sender asks for something.
    Every {
        /// How many.
        messages: u32,
        /// Bytes of an answer, 1 B to 1 MiB; `None` for as many as the message answered has.
        size: Option<u32>,
    },
}
