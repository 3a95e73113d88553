use serde::{Deserialize, Serialize};

/// One message received.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The latency that was measured.
    pub measured: Measured,
    /// The stream's number at its sender.
    pub stream: u32,
    /// The message's number within the stream; for a round trip, the answer's.
    pub sequence: u32,
    /// The message's bytes; for a round trip, the answer's.
    pub size: u32,
    /// `CLOCK_MONOTONIC` in ns, to the microsecond, when the sending application handed the
    /// message over.
    pub sent_ns: u64,
    /// In microseconds: when the read that completed the message (or its answer) returned, minus
    /// `sent_ns`.
    pub latency_us: f64,
}

/// What a latency is the latency of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// A message, from the sender's write to the receiver's read.
    Delivery,
    /// A message and its answer, from the sender's write to the sender's read.
    RoundTrip,
}
