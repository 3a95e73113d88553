//! The wire format, all numbers little-endian.
//!
//! A message has exactly the bytes that the application wrote, 1 to [`MAX_SIZE`]. pillion adds
//! none: the information for the receiver is inside. A connection starts with a preface, and then
//! contains notes and content in turn:
//!
//! * each message appends a note to a queue, which initially contains the preface;
//! * the message's bytes are taken from the queue, and, once the queue is empty, from content, up
//!   to its size;
//! * the end appends a last note, and the whole queue is sent.
//!
//! So a reader of a note knows where that message ends: content follows up to there, or the next
//! note if the message has already ended. A message too small for its own note is announced by a
//! later one, or by the end. The arrival of its last byte is known nevertheless.
//!
//! Preface, [`Preface::LEN`] = 44 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic, `pillion` and the version, 2 |
//! | 8 | 4 | role: 0 the end that connected, 1 the end that responds |
//! | 12 | 4 | stream, the connection's number at its sender, from 0 |
//! | 16 | 8 | seed of all content of this sender |
//! | 24 | 8 | `CLOCK_MONOTONIC` in us, from which the notes' times count |
//! | 32 | 4 | messages per requested response; 0 leaves that to the receiver |
//! | 36 | 4 | bytes of a response; 0 for the size of the message |
//! | 40 | 4 | checksum of the 40 bytes before |
//!
//! Note, 3 bytes and more (5 for 120 B every 100 ms):
//!
//! | field | bytes |
//! |---|---|
//! | size of the message; 0 for the end | 1 to 3, seven bits in each, the lowest first, the top bit set in all but the last |
//! | microseconds since the previous message (first message: since the preface's time); in the
//! end's note the number of messages | likewise, 1 to 10 |
//! | checksum of both, the key and the message's number | 1, CRC-8 |
//!
//! Content is pseudo-random; it depends on seed, stream, role and the byte's offset in the
//! connection. So a wrong, missing, repeated or shifted byte is located exactly.

mod datagram;
mod decoder;
mod message;

use std::collections::VecDeque;

use message::Note;

pub use datagram::{Datagram, DatagramKind};
pub use decoder::{Decoder, Message, WrongByte};
pub use message::{Preface, Role};

/// Maximum size of a message, at either end: 1 MiB.
pub const MAX_SIZE: u32 = 1 << 20;

/// Bytes of the end, if there are fewer than 128 messages and all notes fit into messages.
pub(crate) const END_LEN: u32 = 3;

/// A field or content byte that differs from the format or the preface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: found {found} ({found:#x}), expected {expected} ({expected:#x})")]
pub struct Mismatch {
    /// The field's name, or `content`.
    pub what: &'static str,
    /// Offset of the field or byte from the start of the preface, note or piece of content.
    pub offset: usize,
    /// The value received.
    pub found: u64,
    /// The expected value.
    pub expected: u64,
}

impl Mismatch {
    fn check_equal(
        what: &'static str,
        offset: usize,
        found: u64,
        expected: u64,
    ) -> Result<(), Self> {
        if found == expected {
            return Ok(());
        }
        Err(Self {
            what,
            offset,
            found,
            expected,
        })
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[offset + i]))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[offset + i]))
}

// Checkable pseudo-random content: SplitMix64, one 64-bit mix for each 8 bytes of a stream.

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64: every bit of the result depends on every bit of `x`.
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns eight bytes of the stream from `8 * index`.
fn word(key: u64, index: u64) -> [u8; 8] {
    mix(key.wrapping_add(GOLDEN.wrapping_mul(index.wrapping_add(1)))).to_le_bytes()
}

/// Appends `len` bytes of the stream from `offset`.
fn append_content(key: u64, offset: u64, len: usize, to: &mut Vec<u8>) {
    let end = to.len() + len;
    to.reserve(len + 8);
    let skip = (offset % 8) as usize;
    let mut index = offset / 8;
    to.extend_from_slice(&word(key, index)[skip..]);
    while to.len() < end {
        index += 1;
        to.extend_from_slice(&word(key, index));
    }
    to.truncate(end);
}

/// Returns the index of the first of `bytes`, which start at `offset`, that differs from the
/// stream, and the expected byte.
fn first_difference(key: u64, offset: u64, bytes: &[u8]) -> Option<(usize, u8)> {
    let skip = (offset % 8) as usize;
    let (head, rest) = bytes.split_at(bytes.len().min(8 - skip));
    let first = word(key, offset / 8);
    let at = |(found, expected): (&u8, &u8)| found != expected;
    if head != &first[skip..skip + head.len()] {
        let index = head.iter().zip(&first[skip..]).position(at)?;
        return Some((index, first[skip + index]));
    }
    let words = (offset / 8 + 1..).map(|index| word(key, index));
    let wrong = |(chunk, word): &(&[u8], [u8; 8])| *chunk != &word[..chunk.len()];
    let (number, (chunk, word)) = rest
        .chunks(8)
        .zip(words)
        .enumerate()
        .find(|(_, p)| wrong(p))?;
    let byte = chunk.iter().zip(&word).position(at)?;
    Some((head.len() + number * 8 + byte, word[byte]))
}

/// Encodes one direction of a connection.
#[derive(Debug)]
pub struct Encoder {
    preface: Preface,
    key: u64,
    /// Number of encoded messages.
    messages: u64,
    /// Number of encoded bytes.
    offset: u64,
    last_us: u64,
    /// Bytes of the preface and notes that do not fit into a message yet.
    waiting: VecDeque<u8>,
}

impl Encoder {
    /// Creates an encoder with this preface.
    pub fn new(preface: Preface) -> Self {
        Self {
            key: preface.key(),
            messages: 0,
            offset: 0,
            last_us: preface.base_us,
            waiting: preface.to_bytes().into(),
            preface,
        }
    }

    /// Returns the preface.
    pub fn preface(&self) -> &Preface {
        &self.preface
    }

    /// Appends a message of exactly `size` bytes, 1 to [`MAX_SIZE`], written at `sent_ns`
    /// (`CLOCK_MONOTONIC`).
    pub fn message(&mut self, size: u32, sent_ns: u64, to: &mut Vec<u8>) {
        let size = size.clamp(1, MAX_SIZE);
        let delta_us = self.delta_us(sent_ns);
        let note = Note::Message { size, delta_us };
        note.append(self.key, self.messages, &mut self.waiting);
        self.messages += 1;
        self.last_us += delta_us;
        let size = size as usize;
        let notes = self.waiting.len().min(size);
        to.extend(self.waiting.drain(..notes));
        self.offset += notes as u64;
        if notes < size {
            append_content(self.key, self.offset, size - notes, to);
            self.offset += (size - notes) as u64;
        }
    }

    /// Returns the smallest size, at least `size`, with which the other end can decode a message
    /// written at `sent_ns` as soon as it has arrived.
    pub fn whole_size(&self, size: u32, sent_ns: u64) -> u32 {
        let delta_us = self.delta_us(sent_ns);
        let mut size = size.clamp(1, MAX_SIZE);
        loop {
            let mut note = Vec::with_capacity(message::MAX_LEN);
            Note::Message { size, delta_us }.append(self.key, self.messages, &mut note);
            let needed = (self.waiting.len() + note.len()) as u32;
            if needed <= size || size == MAX_SIZE {
                return size;
            }
            size = needed.min(MAX_SIZE);
        }
    }

    fn delta_us(&self, sent_ns: u64) -> u64 {
        (sent_ns / 1000).saturating_sub(self.last_us)
    }

    /// Appends the rest of the queue and the end; no message may follow.
    pub fn end(&mut self, to: &mut Vec<u8>) {
        let messages = self.messages;
        Note::End { messages }.append(self.key, messages, &mut self.waiting);
        self.offset += self.waiting.len() as u64;
        to.extend(self.waiting.drain(..));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(key: u64, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        append_content(key, offset, len, &mut bytes);
        assert_eq!(bytes.len(), len);
        bytes
    }

    #[test]
    fn content_does_not_depend_on_pieces() {
        let whole = content(7, 0, 100);
        for offset in 0..30 {
            for len in 0..40 {
                let piece = content(7, offset, len);
                assert_eq!(piece, whole[offset as usize..][..len], "{offset} {len}");
                assert_eq!(first_difference(7, offset, &piece), None);
            }
        }
        assert_ne!(content(8, 0, 100), whole);
    }

    #[test]
    fn every_wrong_content_byte_is_located() {
        for offset in 0..9 {
            let mut bytes = content(7, offset, 29);
            for i in 0..bytes.len() {
                let right = bytes[i];
                bytes[i] ^= 0x10;
                assert_eq!(first_difference(7, offset, &bytes), Some((i, right)));
                bytes[i] = right;
            }
        }
    }
}
