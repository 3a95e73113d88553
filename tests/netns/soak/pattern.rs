//! Content of each stream as a function of the position, so that missing, extra or misplaced bytes
//! are detected.

/// Fills a buffer with the bytes of a stream from a position.
pub fn fill(stream: u64, position: u64, bytes: &mut [u8]) {
    for (byte, at) in bytes.iter_mut().zip(position..) {
        *byte = byte_at(stream, at);
    }
}

/// Describes the first wrong byte.
pub fn mistake(stream: u64, position: u64, bytes: &[u8]) -> Option<String> {
    let mut all = bytes.iter().zip(position..);
    let (byte, at) = all.find(|(byte, at)| **byte != byte_at(stream, *at))?;
    let expected = byte_at(stream, at);
    Some(format!("byte {at} is {byte:#04x}, not {expected:#04x}"))
}

fn byte_at(stream: u64, position: u64) -> u8 {
    let word = mix(stream ^ mix(position / 8));
    word.to_le_bytes()[(position % 8) as usize]
}

/// Final steps of SplitMix64: adjacent values differ completely.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[test]
fn a_byte_in_a_wrong_place_is_found() {
    let mut bytes = [0; 100];
    fill(7, 1000, &mut bytes);
    assert_eq!(mistake(7, 1000, &bytes), None);
    assert!(mistake(7, 1001, &bytes).is_some());
    assert!(mistake(8, 1000, &bytes).is_some());
    bytes[50] ^= 1;
    let said = mistake(7, 1000, &bytes).unwrap();
    assert!(said.starts_with("byte 1050 is "), "{said}");
}
