//! The format on the wire, all numbers little-endian.
//!
//! A message is as many bytes as the application wrote, from 1 to [`MAX_SIZE`], and pillion adds
//! none to it: what the receiver must know travels inside. The bytes of a connection are, in this
//! order, a preface, and then notes and content in turn:
//!
//! * each message puts a note at the end of a queue, which the preface began;
//! * the message's bytes are as much of the queue as it has room for, and then, if the queue is
//!   empty, content up to its size;
//! * the end puts a last note there, and the whole queue is sent.
//!
//! So a reader that has read a note knows where that message ends: up to there comes content, and
//! if that is behind it already, the next note. A message too small for its own note becomes known
//! with a later one, or with the end; when its last byte came is known all the same.
//!
//! Preface, [`Preface::LEN`] = 44 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic, `pillion` and the version, 2 |
//! | 8 | 4 | role: 0 the end that connected, 1 the one that answers |
//! | 12 | 4 | stream, the connection's number at its sender, from 0 |
//! | 16 | 8 | seed of all content of this sender |
//! | 24 | 8 | `CLOCK_MONOTONIC` in us, from which the notes' times count |
//! | 32 | 4 | answer wanted to each so many messages; 0 leaves that to the receiver |
//! | 36 | 4 | bytes of an answer; 0 for as many as the message has |
//! | 40 | 4 | check over the 40 bytes before |
//!
//! Note, 3 bytes and more (5 for 120 B each 100 ms):
//!
//! | field | bytes |
//! |---|---|
//! | size of the message; 0 for the end | 1 to 3, seven bits in each, the lowest first, the top bit set in all but the last |
//! | microseconds since the message before (the first: since the preface's time) was handed over; in the end's note the number of messages | likewise, 1 to 10 |
//! | check over both, the key and the message's number | 1, CRC-8 |
//!
//! Content is pseudo-random and follows from seed, stream, role and the byte's offset in the
//! connection. A byte that is wrong, missing, repeated or shifted is therefore found where it is.

pub(crate) mod content;
mod datagram;
mod decoder;
mod encoder;
mod note;
mod preface;

pub use datagram::{Datagram, What};
pub use decoder::{Decoder, Message, WrongByte};
pub use encoder::Encoder;
pub use preface::{Preface, Role};

/// The largest message that either end accepts: 1 MiB.
pub const MAX_SIZE: u32 = 1 << 20;

/// The bytes of the end, where there are fewer than 128 messages and all notes have found room.
pub(crate) const END_LEN: u32 = 3;

/// A field or a byte of content that is not what the format and the preface promise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: found {found} ({found:#x}), expected {expected} ({expected:#x})")]
pub struct Mismatch {
    /// The field's name, or `content`.
    pub what: &'static str,
    /// Bytes from the start of the preface, note or piece of content to the field or byte.
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
