use std::str::FromStr;

use pillion_trace::HalfConnection;

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
