//! The story of one byte range.

mod story;

use std::str::FromStr;

use pillion_trace::HalfConnection;
use serde::Serialize;

pub use story::{Story, Waited, Witness};

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

/// The byte to be explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The connection's number.
    pub connection: u64,
    /// In the direction in which fewer bytes went.
    pub back: bool,
    /// The byte's sequence number.
    pub byte: SequenceNumber,
}

/// A byte of a direction, by its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceNumber {
    /// The byte's position: the first one of a connection is 1.
    Relative(i64),
    /// The sequence number on the wire.
    Raw(u32),
}

impl SequenceNumber {
    /// The byte's position, if it is one of these; of bytes with the same sequence number, this is
    /// the first that is asked about.
    pub fn within(self, begin: i64, end: i64, half: &HalfConnection) -> Option<i64> {
        let position = match self {
            Self::Relative(position) => position,
            Self::Raw(raw) => begin + i64::from(raw.wrapping_sub(half.sequence_number(begin)?)),
        };
        (begin..end).contains(&position).then_some(position)
    }
}

/// A text that names no byte.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no byte; write the connection's number and the byte's, from 1, such as 3:1461, or \
     the sequence number on the wire, such as 3:raw=2837465101"
)]
pub struct TargetError(String);

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        parse(text).ok_or_else(|| TargetError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Target> {
    let (connection, rest) = text.split_once(':')?;
    let (back, byte) = match rest.strip_prefix("back:") {
        Some(byte) => (true, byte),
        None => (false, rest),
    };
    let byte = match byte.strip_prefix("raw=") {
        Some(raw) => SequenceNumber::Raw(raw.parse().ok()?),
        None => SequenceNumber::Relative(byte.parse().ok().filter(|position| *position > 0)?),
    };
    Some(Target {
        connection: connection.parse().ok()?,
        back,
        byte,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_named_by_its_position_or_its_sequence_number() {
        let target = |back, byte| Target {
            connection: 3,
            back,
            byte,
        };
        for (text, expected) in [
            ("3:1461", target(false, SequenceNumber::Relative(1461))),
            ("3:back:1", target(true, SequenceNumber::Relative(1))),
            (
                "3:raw=4294967295",
                target(false, SequenceNumber::Raw(u32::MAX)),
            ),
            ("3:back:raw=0", target(true, SequenceNumber::Raw(0))),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_names_no_byte_is_refused() {
        for text in [
            "",
            "3",
            "3:",
            "3:0",
            "3:-5",
            ":7",
            "3:raw=4294967296",
            "3:forth:7",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
