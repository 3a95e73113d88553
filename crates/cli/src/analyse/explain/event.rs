use serde::Serialize;

/// Something that happened to the range.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// Since the range was first sent, in milliseconds; none where the clocks of both traces
    /// cannot be compared.
    pub ms: Option<f64>,
    #[serde(flatten)]
    pub what: What,
    /// The packet's number in the trace that shows it.
    pub packet: Option<u64>,
    /// Which trace that is.
    pub seen_at: Seen,
}

/// At which end of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    Sender,
    Receiver,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum What {
    /// Sent in a packet with these bytes.
    Sent {
        begin: i64,
        end: i64,
        copy: Copied,
        fate: Option<Arrived>,
    },
    /// A packet brought it.
    Arrived {
        /// The packet in the trace at the sender.
        sent_as: Option<u64>,
        /// No packet had brought it before.
        first: bool,
    },
    /// The application could read it, and could not when it arrived.
    Readable,
    /// An ACK came that asks for a byte for another time.
    DuplicateAck,
    /// A SACK block covered it.
    Sacked,
    /// An ACK covered it.
    Acked,
    /// The receiver reported that it came twice.
    Dsack,
}

/// Why the packet carried it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Copied {
    New,
    Bundled,
    Retransmitted,
}

/// Whether the packet arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrived {
    Delivered,
    Lost,
    Unknown,
}
