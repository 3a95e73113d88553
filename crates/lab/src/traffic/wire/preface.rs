use super::content::mix;
use super::{Mismatch, u32_at, u64_at};

const MAGIC: u64 = u64::from_le_bytes(*b"pillion\x02");

/// What a connection announces before its first note, in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preface {
    /// Who speaks.
    pub role: Role,
    /// The connection's number at its sender, from 0.
    pub stream: u32,
    /// Seed of all content of the sender.
    pub seed: u64,
    /// `CLOCK_MONOTONIC` in us; the times of the notes count from here.
    pub base_us: u64,
    /// The messages that the sender wants answered: 0 leaves that to the receiver, n is each n-th.
    pub answer_every: u32,
    /// Bytes of such an answer, 1 to [`super::MAX_SIZE`]; 0 for as many as the message has.
    pub answer_size: u32,
}

/// The end of the connection that sends a preface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The one that connected.
    Sender,
    /// The one that answers.
    Answerer,
}

impl Preface {
    /// Bytes on the wire.
    pub const LEN: usize = 44;

    /// The preface as sent.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.role as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stream.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.seed.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.base_us.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.answer_every.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.answer_size.to_le_bytes());
        let check = check(&bytes);
        bytes[40..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads a preface; the error is the first field that is wrong.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, Mismatch> {
        let field = |what, offset, expected: u32| {
            let found = u32_at(bytes, offset).into();
            Mismatch::unless_equal(what, offset, found, expected.into())
        };
        Mismatch::unless_equal("magic", 0, u64_at(bytes, 0), MAGIC)?;
        field("check of the preface", 40, check(bytes))?;
        let role = match u32_at(bytes, 8) {
            0 => Role::Sender,
            _ => Role::Answerer,
        };
        field("role", 8, role as u32)?;
        field(
            "size of an answer",
            36,
            u32_at(bytes, 36).min(super::MAX_SIZE),
        )?;
        Ok(Self {
            role,
            stream: u32_at(bytes, 12),
            seed: u64_at(bytes, 16),
            base_us: u64_at(bytes, 24),
            answer_every: u32_at(bytes, 32),
            answer_size: u32_at(bytes, 36),
        })
    }

    /// What all content of this direction of the connection follows from.
    pub(super) fn key(&self) -> u64 {
        mix(self.seed ^ mix(u64::from(self.stream) << 32 | self.role as u64))
    }
}

fn check(bytes: &[u8; Preface::LEN]) -> u32 {
    (0..40)
        .step_by(8)
        .fold(0, |state, offset| mix(state ^ u64_at(bytes, offset))) as u32
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
    fn answers_larger_than_the_format_allows_are_refused() {
        let answer_size = super::super::MAX_SIZE + 1;
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
    fn streams_seeds_and_roles_have_content_of_their_own() {
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
}
