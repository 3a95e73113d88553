//! The format of a UDP datagram, all numbers little-endian. Any datagram can be lost, so each is
//! self-contained:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic, `pilliond` |
//! | 8 | 4 | kind: 0 a message, 1 the end, 2 the receiver's acknowledgement of the end |
//! | 12 | 4 | stream number at the sender, from 0 |
//! | 16 | 8 | seed of all content of this sender |
//! | 24 | 8 | time of the message's write, `CLOCK_MONOTONIC` in ns |
//! | 32 | 4 | the message's sequence number in the stream, from 0; in the end the number of
//! messages |
//! | 36 | 4 | bytes of the datagram |
//! | 40 | 4 | checksum of the 40 bytes before |
//!
//! After the header follows content as in a connection, up to the message's size. Its offset
//! reserves the maximum size for each message.

use super::{append_content, first_difference, mix};

const MAGIC: u64 = u64::from_le_bytes(*b"pilliond");

/// The header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// The kind.
    pub what: DatagramKind,
    /// The stream's number.
    pub stream: u32,
    /// Seed of all content of this sender.
    pub seed: u64,
    /// Time of the message's write, in nanoseconds.
    pub sent_ns: u64,
    /// The message's sequence number, or in the end the number of messages.
    pub sequence: u32,
    /// Bytes of the datagram, including the header.
    pub size: u32,
}

/// The kind of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramKind {
    /// A message.
    Message,
    /// The end of the stream, repeated until it is acknowledged.
    End,
    /// The receiver's acknowledgement of the end.
    EndAck,
}

impl Datagram {
    /// Bytes of the header, and thus of the smallest datagram.
    pub const LEN: usize = 44;
    /// Bytes of the largest datagram over IPv4.
    pub const MAX_SIZE: usize = 65_507;

    /// Replaces the content of `to` by the encoded datagram.
    pub fn write(&self, to: &mut Vec<u8>) {
        let size = (self.size as usize).max(Self::LEN);
        to.clear();
        to.extend_from_slice(&MAGIC.to_le_bytes());
        to.extend_from_slice(&(self.what as u32).to_le_bytes());
        to.extend_from_slice(&self.stream.to_le_bytes());
        to.extend_from_slice(&self.seed.to_le_bytes());
        to.extend_from_slice(&self.sent_ns.to_le_bytes());
        to.extend_from_slice(&self.sequence.to_le_bytes());
        to.extend_from_slice(&(size as u32).to_le_bytes());
        let check = datagram_check(to);
        to.extend_from_slice(&check.to_le_bytes());
        append_content(self.key(), self.offset(), size - Self::LEN, to);
    }

    /// Decodes the header of a datagram; `None` if it is invalid.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (head, _) = bytes.split_at_checked(Self::LEN)?;
        let u32_at = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?));
        if u64_at(0)? != MAGIC || u32_at(40)? != datagram_check(&head[..40]) {
            return None;
        }
        let what = [
            DatagramKind::Message,
            DatagramKind::End,
            DatagramKind::EndAck,
        ];
        Some(Self {
            what: *what.get(u32_at(8)? as usize)?,
            stream: u32_at(12)?,
            seed: u64_at(16)?,
            sent_ns: u64_at(24)?,
            sequence: u32_at(32)?,
            size: u32_at(36)?,
        })
    }

    /// Returns the offset of the first byte that differs from the header's promise.
    #[must_use]
    pub fn first_wrong(&self, bytes: &[u8]) -> Option<usize> {
        let content = bytes.get(Self::LEN..)?;
        let (position, _) = first_difference(self.key(), self.offset(), content)?;
        Some(Self::LEN + position)
    }

    fn key(&self) -> u64 {
        mix(self.seed ^ mix(self.stream.into()))
    }

    fn offset(&self) -> u64 {
        u64::from(self.sequence) << 16
    }
}

fn datagram_check(head: &[u8]) -> u32 {
    head.chunks(4).fold(0, |state, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(state ^ u64::from(u32::from_le_bytes(word)))
    }) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagram_round_trips_and_wrong_bytes_are_detected() {
        let datagram = Datagram {
            what: DatagramKind::Message,
            stream: 3,
            seed: 42,
            sent_ns: 1_000_000_000_123,
            sequence: 7,
            size: 100,
        };
        let mut bytes = Vec::new();
        datagram.write(&mut bytes);
        assert_eq!(bytes.len(), 100);
        assert_eq!(Datagram::read(&bytes), Some(datagram));
        assert_eq!(datagram.first_wrong(&bytes), None);
        for position in 0..100 {
            let mut wrong = bytes.clone();
            wrong[position] ^= 1;
            match position < Datagram::LEN {
                true => assert_eq!(Datagram::read(&wrong), None, "byte {position}"),
                false => assert_eq!(datagram.first_wrong(&wrong), Some(position)),
            }
        }
        assert_eq!(Datagram::read(&bytes[..43]), None);
    }
}
