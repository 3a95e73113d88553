//! The format on the wire, all numbers little-endian.
//!
//! A connection carries one preface and then the messages it announces, nothing between them and
//! nothing after them; then the sender half-closes, and the receiver closes.
//!
//! Preface, [`Preface::LEN`] = 36 bytes, sent in one write with the first message:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic, `pillion` and a line feed |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | stream, the connection's number at its sender, from 0 |
//! | 16 | 8 | seed of all content of this sender |
//! | 24 | 4 | number of messages that follow |
//! | 28 | 4 | size of every message in bytes, header included |
//! | 32 | 4 | check over the 32 bytes before |
//!
//! Message, [`Message::HEADER_LEN`] = 24 bytes and the content:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | stream |
//! | 4 | 4 | sequence, from 0 |
//! | 8 | 8 | send time: `CLOCK_MONOTONIC` in ns when the application handed the message over |
//! | 16 | 4 | size in bytes, header included |
//! | 20 | 4 | check over seed, stream, sequence, send time and size |
//! | 24 | rest | content, pseudo-random from seed, stream and sequence |
//!
//! The receiver can predict every byte but the send time, and the check covers that one. Bytes
//! that are missing, repeated, exchanged or shifted are therefore found at the first message that
//! they touch.

pub(crate) mod content;
mod message;
mod preface;

pub use message::Message;
pub use preface::Preface;

/// The largest message that either end accepts: 1 MiB, header included.
pub const MAX_SIZE: u32 = 1 << 20;

/// A field or a byte of content that is not what the format and the preface promise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: found {found} ({found:#x}), expected {expected} ({expected:#x})")]
pub struct Mismatch {
    /// The field's name, or `content`.
    pub what: &'static str,
    /// Bytes from the start of the preface or message to the field or byte.
    pub offset: usize,
    /// The value received.
    pub found: u64,
    /// The value that should have been received.
    pub expected: u64,
}

impl Mismatch {
    fn unless_equal(
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
