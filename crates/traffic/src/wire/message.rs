use super::content::{fill, first_difference, key, mix};
use super::{Mismatch, Preface, u32_at, u64_at};

/// One message of a stream: what its header says, its content following from that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Its number within the stream, from 0.
    pub sequence: u32,
    /// `CLOCK_MONOTONIC` in ns when the application handed it over.
    pub sent_ns: u64,
}

impl Message {
    /// Bytes of the header, and so of the smallest message.
    pub const HEADER_LEN: usize = 24;

    /// Appends the whole message, of the size that `preface` announces, to `to`.
    pub fn append(&self, preface: &Preface, to: &mut Vec<u8>) {
        let key = key(preface.seed, preface.stream, self.sequence);
        let check = check(key, self.sent_ns, preface.size);
        to.extend_from_slice(&preface.stream.to_le_bytes());
        to.extend_from_slice(&self.sequence.to_le_bytes());
        to.extend_from_slice(&self.sent_ns.to_le_bytes());
        to.extend_from_slice(&preface.size.to_le_bytes());
        to.extend_from_slice(&check.to_le_bytes());
        let content = to.len();
        let content_len = (preface.size as usize).saturating_sub(Self::HEADER_LEN);
        to.resize(content + content_len, 0);
        fill(key, &mut to[content..]);
    }

    /// Verifies every byte of the message that must be number `sequence` of its stream; the error
    /// is the first field or byte that is wrong. `bytes` must be as many as `preface` announces.
    pub fn verify(preface: &Preface, sequence: u32, bytes: &[u8]) -> Result<Self, Mismatch> {
        let len = (preface.size as usize).max(Self::HEADER_LEN);
        Mismatch::unless_equal("length", 0, bytes.len() as u64, len as u64)?;
        let field = |what, offset, expected: u32| {
            let found = u32_at(bytes, offset).into();
            Mismatch::unless_equal(what, offset, found, expected.into())
        };
        let key = key(preface.seed, preface.stream, sequence);
        let sent_ns = u64_at(bytes, 8);
        field("stream", 0, preface.stream)?;
        field("sequence", 4, sequence)?;
        field("size", 16, preface.size)?;
        field("check of the header", 20, check(key, sent_ns, preface.size))?;
        let content = &bytes[Self::HEADER_LEN..];
        match first_difference(key, content) {
            None => Ok(Self { sequence, sent_ns }),
            Some((i, expected)) => Err(Mismatch {
                what: "content",
                offset: Self::HEADER_LEN + i,
                found: content[i].into(),
                expected: expected.into(),
            }),
        }
    }
}

fn check(key: u64, sent_ns: u64, size: u32) -> u32 {
    mix(key ^ mix(sent_ns ^ mix(size.into()))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFACE: Preface = Preface {
        stream: 3,
        seed: 42,
        messages: 1000,
        size: 61,
    };

    #[test]
    fn every_single_wrong_byte_of_a_message_is_found() {
        let message = Message {
            sequence: 17,
            sent_ns: 123_456_789_012,
        };
        let mut bytes = Vec::new();
        message.append(&PREFACE, &mut bytes);
        assert_eq!(bytes.len(), 61);
        assert_eq!(Message::verify(&PREFACE, 17, &bytes), Ok(message));
        for i in 0..bytes.len() {
            bytes[i] ^= 0x80;
            assert!(Message::verify(&PREFACE, 17, &bytes).is_err(), "byte {i}");
            bytes[i] ^= 0x80;
        }
    }

    #[test]
    fn a_message_out_of_turn_is_named() {
        let mut bytes = Vec::new();
        let (sequence, sent_ns) = (18, 1);
        Message { sequence, sent_ns }.append(&PREFACE, &mut bytes);
        let mismatch = Message::verify(&PREFACE, 17, &bytes).unwrap_err();
        assert_eq!(mismatch.offset, 4);
        assert_eq!(
            mismatch.to_string(),
            "sequence: found 18 (0x12), expected 17 (0x11)"
        );
    }
}
