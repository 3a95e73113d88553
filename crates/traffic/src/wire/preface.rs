use super::content::mix;
use super::{MAX_SIZE, Message, Mismatch, u32_at, u64_at};

const MAGIC: u64 = u64::from_le_bytes(*b"pillion\n");
const VERSION: u32 = 1;

/// What a connection announces before its first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preface {
    /// The connection's number at its sender, from 0.
    pub stream: u32,
    /// Seed of all content of the sender.
    pub seed: u64,
    /// Number of messages that follow.
    pub messages: u32,
    /// Bytes of every message, header included: [`Message::HEADER_LEN`] to [`MAX_SIZE`].
    pub size: u32,
}

impl Preface {
    /// Bytes on the wire.
    pub const LEN: usize = 36;

    /// The preface as sent.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stream.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.seed.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.messages.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.size.to_le_bytes());
        let check = check(&bytes);
        bytes[32..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads a preface; the error is the first field that is wrong.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, Mismatch> {
        let field = |what, offset, expected: u32| {
            let found = u32_at(bytes, offset).into();
            Mismatch::unless_equal(what, offset, found, expected.into())
        };
        Mismatch::unless_equal("magic", 0, u64_at(bytes, 0), MAGIC)?;
        field("version", 8, VERSION)?;
        field("check of the preface", 32, check(bytes))?;
        let size = u32_at(bytes, 28);
        let nearest = size.clamp(Message::HEADER_LEN as u32, MAX_SIZE);
        field("size", 28, nearest)?;
        Ok(Self {
            stream: u32_at(bytes, 12),
            seed: u64_at(bytes, 16),
            messages: u32_at(bytes, 24),
            size,
        })
    }
}

fn check(bytes: &[u8; Preface::LEN]) -> u32 {
    (0..32)
        .step_by(8)
        .fold(0, |state, offset| mix(state ^ u64_at(bytes, offset))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFACE: Preface = Preface {
        stream: 3,
        seed: 42,
        messages: 1000,
        size: 120,
    };

    #[test]
    fn preface_survives_the_wire() {
        assert_eq!(Preface::from_bytes(&PREFACE.to_bytes()), Ok(PREFACE));
    }

    #[test]
    fn every_single_wrong_byte_of_the_preface_is_found() {
        for i in 0..Preface::LEN {
            let mut bytes = PREFACE.to_bytes();
            bytes[i] ^= 1;
            assert!(Preface::from_bytes(&bytes).is_err(), "byte {i}");
        }
    }

    #[test]
    fn sizes_outside_the_format_are_refused() {
        for size in [0, 23, MAX_SIZE + 1, u32::MAX] {
            let bytes = Preface { size, ..PREFACE }.to_bytes();
            assert_eq!(Preface::from_bytes(&bytes).unwrap_err().what, "size");
        }
    }
}
