use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;

use crate::traffic::{Quantiles, Record};

/// All that a receiver leaves.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// Counts, faults and quantiles.
    pub report: ReceiveReport,
    /// Every verified message, by connection in the order of streams, if records were asked for.
    pub records: Vec<Record>,
}

/// What was received.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReceiveReport {
    /// Connections accepted.
    pub connections: usize,
    /// Messages verified.
    pub messages: u64,
    /// Bytes read, prefaces and whatever else came included.
    pub bytes: u64,
    /// Connections that carried a wrong byte. The first one ends the connection.
    pub corrupt: usize,
    /// Connections that the sender closed, or that were still open at the stop, before the end of
    /// their messages had come.
    pub incomplete: usize,
    /// Connections that broke: reset, or timed out.
    pub broken: usize,
    /// Delivery latency of the verified messages in microseconds; `None` without any.
    pub latency_us: Option<Quantiles>,
    /// Each connection, in the order of streams, those without a valid preface first.
    pub streams: Vec<StreamReceived>,
}

/// What one connection brought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamReceived {
    /// The stream's number at its sender; `None` without a valid preface.
    pub stream: Option<u32>,
    /// The sender's address.
    pub peer: SocketAddr,
    /// Messages verified.
    pub messages: u64,
    /// Bytes read.
    pub bytes: u64,
    /// What is wrong with the connection; `None` when all messages came and nothing else.
    pub fault: Option<Fault>,
}

/// What is wrong with a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Wrong bytes, missing ones, or a connection that broke.
    pub kind: FaultKind,
    /// Bytes from the start of the connection to the wrong or the first missing byte.
    pub offset: u64,
    /// What was found and what was expected.
    pub what: String,
}

/// The ways in which a connection can be at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A byte is not what it must be.
    Corrupt,
    /// The connection ended in order, but too early.
    Incomplete,
    /// The connection was reset or timed out.
    Broken,
}

impl ReceiveReport {
    pub(super) fn new(
        streams: Vec<StreamReceived>,
        latency_us: Option<Quantiles>,
    ) -> ReceiveReport {
        let at_fault = |kind| {
            let of_kind = |s: &&StreamReceived| s.fault.as_ref().is_some_and(|f| f.kind == kind);
            streams.iter().filter(of_kind).count()
        };
        Self {
            connections: streams.len(),
            messages: streams.iter().map(|s| s.messages).sum(),
            bytes: streams.iter().map(|s| s.bytes).sum(),
            corrupt: at_fault(FaultKind::Corrupt),
            incomplete: at_fault(FaultKind::Incomplete),
            broken: at_fault(FaultKind::Broken),
            latency_us,
            streams,
        }
    }
}

/// One line: the connection, and what is wrong with it.
impl fmt::Display for StreamReceived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stream {
            Some(stream) => write!(f, "stream {stream} from {}: ", self.peer)?,
            None => write!(f, "connection from {}: ", self.peer)?,
        }
        match &self.fault {
            Some(fault) => write!(f, "byte {}: {}", fault.offset, fault.what),
            None => write!(f, "all {} messages verified", self.messages),
        }
    }
}
