use super::*;
use crate::traffic::wire::{Encoder, Role};

const PREFACE: Preface = Preface {
    role: Role::Sender,
    stream: 3,
    seed: 42,
    base_us: 1_000,
    answer_every: 0,
    answer_size: 0,
};

/// A whole connection, a message each millisecond, with the ends of the messages.
fn connection(sizes: &[u32]) -> Vec<u8> {
    let mut encoder = Encoder::new(PREFACE);
    let mut bytes = Vec::new();
    for (sent_ms, &size) in (1..).zip(sizes) {
        encoder.message(size, sent_ms * 1_000_000, &mut bytes);
    }
    assert_eq!(bytes.len(), sizes.iter().sum::<u32>() as usize);
    encoder.end(&mut bytes);
    bytes
}

/// Takes the bytes in pieces of this length; each comes at the time of its last byte's offset.
fn decode(bytes: &[u8], piece: usize) -> Result<(Decoder, Vec<Message>), WrongByte> {
    let mut decoder = Decoder::default();
    let mut messages = Vec::new();
    let mut came = 0;
    for piece in bytes.chunks(piece) {
        came += piece.len();
        decoder.take(piece, came as u64, |_, message| messages.push(message))?;
    }
    Ok((decoder, messages))
}

const MIXED: [u32; 12] = [1, 1, 60, 3, 200, 1, 1, 1, 1, 1, 2, 5];

#[test]
fn messages_keep_their_size_and_times_in_whatever_pieces_they_come() {
    let bytes = connection(&MIXED);
    for piece in 1..=bytes.len() {
        let (decoder, messages) = decode(&bytes, piece).unwrap();
        assert!(decoder.is_complete() && decoder.missing().is_none());
        assert_eq!(messages.len(), MIXED.len());
        let mut end = 0;
        for (sequence, (message, size)) in (0..).zip(messages.iter().zip(MIXED)) {
            end += size as usize;
            let read = end.div_ceil(piece) * piece;
            let expected = Message {
                sequence,
                size,
                sent_ns: u64::from(sequence + 1) * 1_000_000,
                received_ns: read.min(bytes.len()) as u64,
            };
            assert_eq!(*message, expected, "in pieces of {piece}");
        }
    }
}

#[test]
fn every_single_wrong_byte_of_a_connection_is_found() {
    let right = connection(&MIXED);
    for i in 0..right.len() {
        let mut bytes = right.clone();
        bytes[i] ^= 0x04;
        assert!(decode(&bytes, 7).is_err(), "byte {i}");
    }
}

#[test]
fn bytes_missing_repeated_or_added_are_found() {
    let right = connection(&[120; 6]);
    for len in 1..60 {
        let mut missing = right.clone();
        missing.drain(150..150 + len);
        assert!(decode(&missing, 7).is_err(), "{len} missing");
        let mut repeated = right.clone();
        repeated.splice(150..150, right[150 - len..150].iter().copied());
        assert!(decode(&repeated, 7).is_err(), "{len} repeated");
    }
    let longer = [&right[..], &[0]].concat();
    let error = decode(&longer, 7).err().unwrap();
    assert_eq!(error.what, "data after the end of 6 messages");
}

#[test]
fn a_connection_cut_anywhere_is_incomplete() {
    let whole = connection(&MIXED);
    for len in 0..whole.len() {
        let (decoder, _) = decode(&whole[..len], 9).unwrap();
        assert!(decoder.missing().is_some(), "{len} bytes");
        assert_eq!(decoder.offset(), len as u64);
    }
}

#[test]
fn a_large_message_in_many_reads_leaves_no_trail_of_them() {
    let bytes = connection(&[100_000]);
    let mut decoder = Decoder::default();
    for piece in bytes[..90_000].chunks(100) {
        decoder.take(piece, 1, |_, _| {}).unwrap();
        assert!(decoder.reads.len() <= 2);
    }
}

#[test]
fn a_message_of_whole_size_is_known_when_it_has_come() {
    let mut encoder = Encoder::new(PREFACE);
    let mut decoder = Decoder::default();
    for (sequence, size) in (1..).zip([1, 1, 4, 119, 128, 1, 20_000]) {
        let whole = encoder.whole_size(size, sequence * 100_000_000);
        assert!(whole >= size && whole <= size.max(60));
        let mut bytes = Vec::new();
        encoder.message(whole, sequence * 100_000_000, &mut bytes);
        let mut messages = 0;
        decoder.take(&bytes, 0, |_, _| messages += 1).unwrap();
        assert_eq!(messages, 1, "message {sequence} of {size} B");
    }
}
