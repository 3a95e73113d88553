use super::content::mix;

/// What the bytes of a connection say of one message, or of their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// A message of `size` bytes, handed over `after_us` after the one before.
    Message { size: u32, after_us: u64 },
    /// No more follow than these.
    End { messages: u64 },
}

/// What reading the beginning of some bytes comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The note is longer than the bytes.
    Unfinished,
    Note(Note),
    /// No note; why, found, expected.
    Wrong(&'static str, u64, u64),
}

/// Longer is none: two numbers of at most ten bytes and the check.
pub(super) const MAX_LEN: usize = 21;

impl Note {
    /// Appends the note that stands at `sequence` of the stream with this key.
    pub(super) fn append(self, key: u64, sequence: u64, to: &mut impl Extend<u8>) {
        let (size, second) = match self {
            Note::Message { size, after_us } => (u64::from(size), after_us),
            Note::End { messages } => (0, messages),
        };
        let mut bytes = [0; MAX_LEN];
        let len = put(size, &mut bytes, 0);
        let len = put(second, &mut bytes, len);
        bytes[len] = check(key, sequence, &bytes[..len]);
        to.extend(bytes.into_iter().take(len + 1));
    }

    /// Reads the note that `bytes` are the beginning of, or all of.
    pub(super) fn read(key: u64, sequence: u64, bytes: &[u8]) -> Reading {
        let mut rest = bytes;
        let (Some(size), Some(second), Some(&found)) =
            (take(&mut rest), take(&mut rest), rest.first())
        else {
            return match bytes.len() {
                MAX_LEN.. => Reading::Wrong("note, which is too long", MAX_LEN as u64, 5),
                _ => Reading::Unfinished,
            };
        };
        let expected = check(key, sequence, &bytes[..bytes.len() - rest.len()]);
        if found != expected {
            return Reading::Wrong("check of the note", found.into(), expected.into());
        }
        let largest = super::MAX_SIZE;
        match u32::try_from(size) {
            Ok(0) => Reading::Note(Note::End { messages: second }),
            Ok(size) if size <= largest => Reading::Note(Note::Message {
                size,
                after_us: second,
            }),
            _ => Reading::Wrong("size", size, largest.into()),
        }
    }
}

/// A number in groups of seven bits, the lowest first; all but the last have the top bit set.
fn put(mut number: u64, to: &mut [u8; MAX_LEN], mut at: usize) -> usize {
    while number >= 0x80 {
        to[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    to[at] = number as u8;
    at + 1
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let last = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    let (number, rest) = bytes.split_at(last + 1);
    *bytes = rest;
    let groups = number.iter().rev();
    Some(groups.fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f)))
}

/// CRC-8 (polynomial 0x07), which no single wrong byte escapes.
fn check(key: u64, sequence: u64, bytes: &[u8]) -> u8 {
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

    fn bytes(note: Note) -> Vec<u8> {
        let mut bytes = Vec::new();
        note.append(1, 2, &mut bytes);
        bytes
    }

    #[test]
    fn notes_of_all_lengths_survive_the_wire() {
        let sizes = [1, 127, 128, 16_384, super::super::MAX_SIZE];
        for size in sizes {
            for after_us in [0, 127, 30_000, 3_600_000_000, u64::MAX] {
                let note = Note::Message { size, after_us };
                let bytes = bytes(note);
                assert!(bytes.len() <= MAX_LEN);
                assert_eq!(Note::read(1, 2, &bytes), Reading::Note(note));
                for len in 0..bytes.len() {
                    assert_eq!(Note::read(1, 2, &bytes[..len]), Reading::Unfinished);
                }
            }
        }
        let end = Note::End { messages: 1 << 33 };
        assert_eq!(Note::read(1, 2, &bytes(end)), Reading::Note(end));
    }

    #[test]
    fn a_thin_streams_note_is_short() {
        let (size, after_us) = (120, 100_000);
        assert_eq!(bytes(Note::Message { size, after_us }).len(), 5);
    }

    #[test]
    fn every_single_wrong_bit_of_a_note_is_found() {
        let (size, after_us) = (300, 100_000);
        let right = bytes(Note::Message { size, after_us });
        for bit in 0..right.len() * 8 {
            let mut bytes = right.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let read = Note::read(1, 2, &bytes);
            assert!(!matches!(read, Reading::Note(_)), "bit {bit}: {read:?}");
        }
    }

    #[test]
    fn endless_numbers_and_sizes_beyond_the_format_are_refused() {
        assert!(matches!(
            Note::read(1, 2, &[0xff; MAX_LEN]),
            Reading::Wrong(..)
        ));
        let size = super::super::MAX_SIZE + 1;
        let note = bytes(Note::Message { size, after_us: 0 });
        assert!(matches!(
            Note::read(1, 2, &note),
            Reading::Wrong("size", ..)
        ));
    }
}
