use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;

use crate::traffic::{Quantiles, Record};

/// The results of a receiver.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceiveResult {
    /// Counts, faults and quantiles.
    pub report: ReceiveReport,
    /// Every verified message, by connection in the order of streams, if records are enabled.
    pub records: Vec<Record>,
}

/// The report of a receiver.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReceiveReport {
    /// Connections accepted.
    pub connections: usize,
    /// Messages verified.
    pub messages: u64,
    /// Bytes read, including prefaces and unexpected data.
    pub bytes: u64,
    /// Connections with a wrong byte; the first wrong byte ends the connection.
    pub corrupt: usize,
    /// Connections that ended before all their messages had arrived: closed by the sender, or still
    /// open at the stop.
    pub incomplete: usize,
    /// Connections that were reset or timed out.
    pub broken: usize,
    /// Delivery latency of the verified messages in microseconds; `None` without messages.
    pub latency_us: Option<Quantiles>,
    /// Each connection, in the order of streams; connections without a valid preface come first.
    pub streams: Vec<StreamReceiveReport>,
}

/// The report of one connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamReceiveReport {
    /// The stream's number at its sender; `None` without a valid preface.
    pub stream: Option<u32>,
    /// The sender's address.
    pub peer: SocketAddr,
    /// Messages verified.
    pub messages: u64,
    /// Bytes read.
    pub bytes: u64,
    /// The connection's fault; `None` if all messages arrived and nothing else.
    pub fault: Option<Fault>,
}

/// The fault of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Bytes from the start of the connection to the wrong or first missing byte.
    pub offset: u64,
    /// Received and expected values.
    pub what: String,
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A byte is wrong.
    Corrupt,
    /// The connection was closed in order, but too early.
    Incomplete,
    /// The connection was reset or timed out.
    Broken,
}

impl ReceiveReport {
    pub(super) fn new(
        streams: Vec<StreamReceiveReport>,
        latency_us: Option<Quantiles>,
    ) -> ReceiveReport {
        let count_of = |kind| {
            let of_kind =
                |s: &&StreamReceiveReport| s.fault.as_ref().is_some_and(|f| f.kind == kind);
            streams.iter().filter(of_kind).count()
        };
        Self {
            connections: streams.len(),
            messages: streams.iter().map(|s| s.messages).sum(),
            bytes: streams.iter().map(|s| s.bytes).sum(),
            corrupt: count_of(FaultKind::Corrupt),
            incomplete: count_of(FaultKind::Incomplete),
            broken: count_of(FaultKind::Broken),
            latency_us,
            streams,
        }
    }
}

/// One line with the connection and its fault.
impl fmt::Display for StreamReceiveReport {
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
