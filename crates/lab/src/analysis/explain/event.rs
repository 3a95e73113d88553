use serde::Serialize;

/// Something that happened to the range.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// Since the range was first sent, in milliseconds; none where the clocks of both traces
    /// cannot be compared.
    pub ms: Option<f64>,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
    /// The packet's number in the trace that shows it.
    pub packet: Option<u64>,
    /// The trace that shows the packet.
    pub seen_at: Seen,
}

/// At which end of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// Where the stream comes from.
    Sender,
    /// Where the stream goes to.
    Receiver,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum What {
    /// Sent in a packet with these bytes.
    Sent {
        /// The packet's first byte, counted from 1.
        begin: i64,
        /// The first byte behind it.
        end: i64,
        /// Why the packet carried the range.
        copy: Copied,
        /// What became of the packet; none of one trace.
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
    /// For the first time.
    New,
    /// Before new bytes.
    Bundled,
    /// Without a new byte.
    Retransmitted,
}

/// Whether the packet arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrived {
    /// The packet arrived.
    Delivered,
    /// The packet arrived, at a time that the traces do not tell.
    Unseen,
    /// The packet did not arrive.
    Lost,
    /// The traces do not tell.
    Unknown,
}
