//! Checkable pseudo-random content: SplitMix64, one 64-bit mix for each 8 bytes of a stream.

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64: every bit of the result depends on every bit of `x`.
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The eight bytes of the stream that begin at `8 * index`.
fn word(key: u64, index: u64) -> [u8; 8] {
    mix(key.wrapping_add(GOLDEN.wrapping_mul(index.wrapping_add(1)))).to_le_bytes()
}

/// Appends the `len` bytes of the stream that begin at `offset`.
pub(super) fn append(key: u64, offset: u64, len: usize, to: &mut Vec<u8>) {
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

/// The first of `bytes`, which begin at `offset`, that is not the stream's: its index, and what it
/// should be.
pub(super) fn first_difference(key: u64, offset: u64, bytes: &[u8]) -> Option<(usize, u8)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn content(key: u64, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        append(key, offset, len, &mut bytes);
        assert_eq!(bytes.len(), len);
        bytes
    }

    #[test]
    fn content_is_the_same_in_whatever_pieces_it_is_made() {
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
    fn every_single_wrong_byte_is_located() {
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
