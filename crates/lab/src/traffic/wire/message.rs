//! The preface of a stream, and the note of a message.

use super::{MAX_SIZE, Mismatch, mix, u32_at, u64_at};

const MAGIC: u64 = u64::from_le_bytes(*b"pillion\x02");

/// The first data of a connection, in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preface {
    /// The sending end.
    pub role: Role,
    /// The connection's number at its sender, from 0.
    pub stream: u32,
    /// Seed of all content of the sender.
    pub seed: u64,
    /// `CLOCK_MONOTONIC` in us; origin of the notes' times.
    pub base_us: u64,
    /// Requested responses: 0 leaves them to the receiver, n requests one per n messages.
    pub answer_every: u32,
    /// Bytes of a response, 1 to [`MAX_SIZE`]; 0 for the size of the message.
    pub answer_size: u32,
}

/// The end of a connection that sends a preface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The end that connected.
    Sender,
    /// The end that sends responses.
    Answerer,
}

impl Preface {
    /// Bytes on the wire.
    pub const LEN: usize = 44;

    /// Encodes the preface.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.role as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stream.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.seed.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.base_us.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.answer_every.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.answer_size.to_le_bytes());
        let check = preface_check(&bytes);
        bytes[40..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Decodes a preface; the error is the first invalid field.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, Mismatch> {
        let field = |what, offset, expected: u32| {
            let found = u32_at(bytes, offset).into();
            Mismatch::check_equal(what, offset, found, expected.into())
        };
        Mismatch::check_equal("magic", 0, u64_at(bytes, 0), MAGIC)?;
        field("check of the preface", 40, preface_check(bytes))?;
        let role = match u32_at(bytes, 8) {
            0 => Role::Sender,
            _ => Role::Answerer,
        };
        field("role", 8, role as u32)?;
        field("size of an answer", 36, u32_at(bytes, 36).min(MAX_SIZE))?;
        Ok(Self {
            role,
            stream: u32_at(bytes, 12),
            seed: u64_at(bytes, 16),
            base_us: u64_at(bytes, 24),
            answer_every: u32_at(bytes, 32),
            answer_size: u32_at(bytes, 36),
        })
    }

    /// Returns the key of all content in this direction of the connection.
    pub(super) fn key(&self) -> u64 {
        mix(self.seed ^ mix(u64::from(self.stream) << 32 | self.role as u64))
    }
}

fn preface_check(bytes: &[u8; Preface::LEN]) -> u32 {
    (0..40)
        .step_by(8)
        .fold(0, |state, offset| mix(state ^ u64_at(bytes, offset))) as u32
}

/// The description of one message, or of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// A message of `size` bytes, written `delta_us` after the previous one.
    Message { size: u32, delta_us: u64 },
    /// The end, after this number of messages.
    End { messages: u64 },
}

/// The result of decoding a note.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParsedNote {
    /// The note is longer than the bytes.
    Incomplete,
    Note(Note),
    /// Invalid note: description, received and expected value.
    Wrong(&'static str, u64, u64),
}

/// Maximum bytes of a note: two numbers of at most ten bytes, and the check.
pub(super) const MAX_LEN: usize = 21;

impl Note {
    /// Appends the note with the number `sequence` in the stream with this key.
    pub(super) fn append(self, key: u64, sequence: u64, to: &mut impl Extend<u8>) {
        let (size, second) = match self {
            Note::Message { size, delta_us } => (u64::from(size), delta_us),
            Note::End { messages } => (0, messages),
        };
        let mut bytes = [0; MAX_LEN];
        let len = put_varint(size, &mut bytes, 0);
        let len = put_varint(second, &mut bytes, len);
        bytes[len] = note_check(key, sequence, &bytes[..len]);
        to.extend(bytes.into_iter().take(len + 1));
    }

    /// Decodes the note at the start of `bytes`.
    pub(super) fn read(key: u64, sequence: u64, bytes: &[u8]) -> ParsedNote {
        let mut rest = bytes;
        let (Some(size), Some(second), Some(&found)) =
            (take_varint(&mut rest), take_varint(&mut rest), rest.first())
        else {
            return match bytes.len() {
                MAX_LEN.. => ParsedNote::Wrong("note, which is too long", MAX_LEN as u64, 5),
                _ => ParsedNote::Incomplete,
            };
        };
        let expected = note_check(key, sequence, &bytes[..bytes.len() - rest.len()]);
        if found != expected {
            return ParsedNote::Wrong("check of the note", found.into(), expected.into());
        }
        let max = MAX_SIZE;
        match u32::try_from(size) {
            Ok(0) => ParsedNote::Note(Note::End { messages: second }),
            Ok(size) if size <= max => ParsedNote::Note(Note::Message {
                size,
                delta_us: second,
            }),
            _ => ParsedNote::Wrong("size", size, max.into()),
        }
    }
}

/// Encodes a number in groups of seven bits, the lowest first; all but the last have the top bit
/// set.
fn put_varint(mut number: u64, to: &mut [u8; MAX_LEN], mut at: usize) -> usize {
    while number >= 0x80 {
        to[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    to[at] = number as u8;
    at + 1
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let last = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    let (number, rest) = bytes.split_at(last + 1);
    *bytes = rest;
    let groups = number.iter().rev();
    Some(groups.fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f)))
}

/// Computes a CRC-8 (polynomial 0x07), which detects every single wrong byte.
fn note_check(key: u64, sequence: u64, bytes: &[u8]) -> u8 {
    let first = mix(key ^ sequence) as u8;
    bytes.iter().fold(first, |state, byte| {
        (0..8).fold(state ^ byte, |state, _| match state & 0x80 {
            0 => state << 1,
            _ => state << 1 ^ 0x07,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFACE: Preface = Preface {
        role: Role::Answerer,
        stream: 3,
        seed: 42,
        base_us: 1_000_000_000_000,
        answer_every: 4,
        answer_size: 120,
    };

    #[test]
    fn preface_round_trips() {
        assert_eq!(Preface::from_bytes(&PREFACE.to_bytes()), Ok(PREFACE));
    }

    #[test]
    fn every_wrong_preface_byte_is_detected() {
        for i in 0..Preface::LEN {
            let mut bytes = PREFACE.to_bytes();
            bytes[i] ^= 1;
            assert!(Preface::from_bytes(&bytes).is_err(), "byte {i}");
        }
    }

    #[test]
    fn oversized_response_size_is_rejected() {
        let answer_size = super::MAX_SIZE + 1;
        let bytes = Preface {
            answer_size,
            ..PREFACE
        }
        .to_bytes();
        assert_eq!(
            Preface::from_bytes(&bytes).unwrap_err().what,
            "size of an answer"
        );
    }

    #[test]
    fn content_key_depends_on_stream_seed_and_role() {
        let others = [
            Preface {
                stream: 4,
                ..PREFACE
            },
            Preface {
                seed: 43,
                ..PREFACE
            },
            Preface {
                role: Role::Sender,
                ..PREFACE
            },
        ];
        assert!(others.iter().all(|other| other.key() != PREFACE.key()));
    }

    fn bytes(note: Note) -> Vec<u8> {
        let mut bytes = Vec::new();
        note.append(1, 2, &mut bytes);
        bytes
    }

    #[test]
    fn notes_of_all_lengths_round_trip() {
        let sizes = [1, 127, 128, 16_384, super::MAX_SIZE];
        for size in sizes {
            for delta_us in [0, 127, 30_000, 3_600_000_000, u64::MAX] {
                let note = Note::Message { size, delta_us };
                let bytes = bytes(note);
                assert!(bytes.len() <= MAX_LEN);
                assert_eq!(Note::read(1, 2, &bytes), ParsedNote::Note(note));
                for len in 0..bytes.len() {
                    assert_eq!(Note::read(1, 2, &bytes[..len]), ParsedNote::Incomplete);
                }
            }
        }
        let end = Note::End { messages: 1 << 33 };
        assert_eq!(Note::read(1, 2, &bytes(end)), ParsedNote::Note(end));
    }

    #[test]
    fn thin_stream_note_has_five_bytes() {
        let (size, delta_us) = (120, 100_000);
        assert_eq!(bytes(Note::Message { size, delta_us }).len(), 5);
    }

    #[test]
    fn every_wrong_note_bit_is_detected() {
        let (size, delta_us) = (300, 100_000);
        let right = bytes(Note::Message { size, delta_us });
        for bit in 0..right.len() * 8 {
            let mut bytes = right.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let read = Note::read(1, 2, &bytes);
            assert!(!matches!(read, ParsedNote::Note(_)), "bit {bit}: {read:?}");
        }
    }

    #[test]
    fn endless_number_and_oversized_message_are_rejected() {
        assert!(matches!(
            Note::read(1, 2, &[0xff; MAX_LEN]),
            ParsedNote::Wrong(..)
        ));
        let size = super::MAX_SIZE + 1;
        let note = bytes(Note::Message { size, delta_us: 0 });
        assert!(matches!(
            Note::read(1, 2, &note),
            ParsedNote::Wrong("size", ..)
        ));
    }
}
