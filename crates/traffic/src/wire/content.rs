//! Checkable pseudo-random content: SplitMix64, one 64-bit mix for each 8 bytes.

/// The finaliser of SplitMix64: every bit of the result depends on every bit of `x`.
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The start of one message's content.
pub(super) fn key(seed: u64, stream: u32, sequence: u32) -> u64 {
    mix(seed ^ mix(u64::from(stream) << 32 | u64::from(sequence)))
}

fn words(key: u64) -> impl Iterator<Item = [u8; 8]> {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    (1u64..).map(move |i| mix(key.wrapping_add(GOLDEN.wrapping_mul(i))).to_le_bytes())
}

/// Writes the content that belongs to `key` over `to`.
pub(super) fn fill(key: u64, to: &mut [u8]) {
    for (chunk, word) in to.chunks_mut(8).zip(words(key)) {
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// The first byte of `content` that does not belong to `key`: its index, and what it should be.
pub(super) fn first_difference(key: u64, content: &[u8]) -> Option<(usize, u8)> {
    let wrong = |(chunk, word): &(&[u8], [u8; 8])| *chunk != &word[..chunk.len()];
    let (index, (chunk, word)) = content
        .chunks(8)
        .zip(words(key))
        .enumerate()
        .find(|(_, pair)| wrong(pair))?;
    let byte = (0..chunk.len()).find(|&i| chunk[i] != word[i])?;
    Some((index * 8 + byte, word[byte]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_differs_between_seeds_streams_and_sequences() {
        let bytes = |seed, stream, sequence| {
            let mut bytes = [0; 96];
            fill(key(seed, stream, sequence), &mut bytes);
            bytes
        };
        assert_eq!(bytes(1, 2, 3), bytes(1, 2, 3));
        for other in [
            bytes(2, 2, 3),
            bytes(1, 3, 3),
            bytes(1, 2, 4),
            bytes(1, 3, 2),
        ] {
            assert_ne!(bytes(1, 2, 3), other);
        }
    }

    #[test]
    fn every_single_wrong_byte_is_located() {
        let key = key(7, 0, 0);
        let mut bytes = [0; 21];
        fill(key, &mut bytes);
        assert_eq!(first_difference(key, &bytes), None);
        for i in 0..bytes.len() {
            let right = bytes[i];
            bytes[i] ^= 0x10;
            assert_eq!(first_difference(key, &bytes), Some((i, right)));
            bytes[i] = right;
        }
    }
}
