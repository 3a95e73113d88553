//! A UDP datagram, all numbers little-endian. Any of them can be lost, so each says all by itself:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic, `pilliond` |
//! | 8 | 4 | what it is: 0 a message, 1 the end, 2 the receiver's answer to that |
//! | 12 | 4 | stream, by its number at its sender, from 0 |
//! | 16 | 8 | seed of all content of this sender |
//! | 24 | 8 | `CLOCK_MONOTONIC` in ns when the message was handed over |
//! | 32 | 4 | the message's number in its stream, from 0; in the end the number of messages |
//! | 36 | 4 | bytes of the datagram |
//! | 40 | 4 | check over the 40 bytes before |
//!
//! Behind it comes content as in a connection, up to the message's size: it begins where each
//! message has room for the largest.

use super::{append_content, first_difference, mix};

const MAGIC: u64 = u64::from_le_bytes(*b"pilliond");

/// What is said at the head of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// What it is.
    pub what: What,
    /// The stream's number.
    pub stream: u32,
    /// Seed of all content of this sender.
    pub seed: u64,
    /// When the message was handed over, in nanoseconds.
    pub sent_ns: u64,
    /// The message's number, or in the end how many there were.
    pub sequence: u32,
    /// Bytes that it has, the head among them.
    pub size: u32,
}

/// What a datagram is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A message.
    Message,
    /// The end of the stream, repeated until it is answered.
    End,
    /// The receiver has heard of the end.
    EndHeard,
}

impl Datagram {
    /// Bytes of the head, and so of the smallest datagram.
    pub const LEN: usize = 44;
    /// Bytes of the largest one, over IPv4.
    pub const MAX_SIZE: usize = 65_507;

    /// Puts the datagram in the place of what `to` holds.
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

    /// The head of a datagram; none if it is no such thing.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (head, _) = bytes.split_at_checked(Self::LEN)?;
        let u32_at = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?));
        if u64_at(0)? != MAGIC || u32_at(40)? != datagram_check(&head[..40]) {
            return None;
        }
        let what = [What::Message, What::End, What::EndHeard];
        Some(Self {
            what: *what.get(u32_at(8)? as usize)?,
            stream: u32_at(12)?,
            seed: u64_at(16)?,
            sent_ns: u64_at(24)?,
            sequence: u32_at(32)?,
            size: u32_at(36)?,
        })
    }

    /// The place of the first byte that is not what the head promises.
    #[must_use]
    pub fn first_wrong(&self, bytes: &[u8]) -> Option<usize> {
        let content = bytes.get(Self::LEN..)?;
        let (place, _) = first_difference(self.key(), self.offset(), content)?;
        Some(Self::LEN + place)
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
    fn a_datagram_survives_the_wire_and_each_wrong_byte_is_found() {
        let datagram = Datagram {
            what: What::Message,
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
        for place in 0..100 {
            let mut wrong = bytes.clone();
            wrong[place] ^= 1;
            match place < Datagram::LEN {
                true => assert_eq!(Datagram::read(&wrong), None, "byte {place}"),
                false => assert_eq!(datagram.first_wrong(&wrong), Some(place)),
            }
        }
        assert_eq!(Datagram::read(&bytes[..43]), None);
    }
}
