//! The history of one byte range, for `analyse --explain`.

mod timeline;

use std::str::FromStr;

use pillion_trace::HalfConnection;
use serde::Serialize;

pub use timeline::{BlockedRange, ByteObserver, Timeline};

/// An event in the history of the range.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// Time since the range was first sent, in milliseconds; `None` if the two clocks cannot be
    /// compared.
    pub ms: Option<f64>,
    /// The kind of event, with its details.
    #[serde(flatten)]
    pub kind: EventKind,
    /// The packet's number in the trace that shows it.
    pub packet: Option<u64>,
    /// The trace that shows the packet.
    pub seen_at: TraceSide,
}

/// An end of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceSide {
    /// The end that sends the stream.
    Sender,
    /// The end that receives the stream.
    Receiver,
}

/// The kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum EventKind {
    /// A packet with the range was sent.
    Sent {
        /// The packet's first byte, counted from 1.
        start: i64,
        /// The end of the packet's bytes, exclusive.
        end: i64,
        /// The reason why the packet contains the range.
        copy: CopyReason,
        /// The packet's disposition; `None` with only one trace.
        disposition: Option<PacketDisposition>,
    },
    /// A packet with the range arrived.
    Arrived {
        /// The packet's number in the sender's trace.
        sent_as: Option<u64>,
        /// Whether no earlier packet with the range had arrived.
        first: bool,
    },
    /// All earlier bytes have arrived, later than the range did.
    Readable,
    /// A duplicate ACK requested the range.
    DuplicateAck,
    /// A SACK block covered the range.
    Sacked,
    /// An ACK covered the range.
    Acked,
    /// A DSACK block reported that the range arrived twice.
    Dsack,
}

/// The reason why a packet contains the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyReason {
    /// The first transmission.
    New,
    /// A copy in front of new bytes.
    Bundled,
    /// A packet without new bytes.
    Retransmitted,
}

/// The disposition of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketDisposition {
    /// The packet arrived.
    Delivered,
    /// The packet arrived according to ACKs, but the receiver's trace does not show it.
    Unseen,
    /// The packet did not arrive.
    Lost,
    /// The traces do not show whether it arrived.
    Unknown,
}

/// The byte to explain, as given on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The connection's number, counted from 1.
    pub connection: u64,
    /// Whether the byte belongs to the direction with fewer bytes.
    pub back: bool,
    /// The byte's sequence number.
    pub byte: SequenceNumber,
}

/// The sequence number of a byte in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceNumber {
    /// Relative to the start of the connection, whose first byte is 1.
    Relative(i64),
    /// As in the TCP header.
    Raw(u32),
}

impl SequenceNumber {
    /// Returns the byte's position if it is from `start` to before `end`. If several bytes have the
    /// same number on the wire, this is the first one passed to this function.
    pub fn within(self, start: i64, end: i64, half: &HalfConnection) -> Option<i64> {
        let position = match self {
            Self::Relative(position) => position,
            Self::Raw(raw) => start + i64::from(raw.wrapping_sub(half.sequence_number(start)?)),
        };
        (start..end).contains(&position).then_some(position)
    }
}

/// The error for a text that does not identify a byte.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid byte `{0}`: expected the connection's number and the byte's, from 1, as in 3:1461, \
     or the sequence number on the wire, as in 3:raw=2837465101"
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
    fn byte_is_named_by_position_or_sequence_number() {
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
    fn invalid_byte_is_rejected() {
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
