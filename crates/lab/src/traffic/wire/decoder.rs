use std::collections::VecDeque;

use super::message::{Note, Reading};
use super::{Mismatch, Preface, first_difference, message};

/// One message that has come whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The message's number within the stream, from 0.
    pub sequence: u32,
    /// The message's bytes.
    pub size: u32,
    /// `CLOCK_MONOTONIC` in ns, to the microsecond, when the application handed it over.
    pub sent_ns: u64,
    /// `CLOCK_MONOTONIC` in ns when the read that brought its last byte returned.
    pub received_ns: u64,
}

/// A byte that is wrong: how many bytes of the connection come before it, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongByte {
    /// Bytes from the start of the connection.
    pub offset: u64,
    /// What was found there, and where.
    pub what: String,
}

/// Verifies the bytes of one direction of a connection, in whatever pieces they come.
#[derive(Debug)]
pub struct Decoder {
    preface: Option<Preface>,
    key: u64,
    next: Next,
    /// The beginning of a preface or note.
    partial: Vec<u8>,
    /// Bytes verified, those of `partial` excluded.
    offset: u64,
    /// Where the last message known of ends.
    end: u64,
    last_us: u64,
    /// Notes read, and messages complete.
    notes: u64,
    messages: u64,
    /// Messages known of whose last byte has not come, or not been matched with its read.
    known: VecDeque<(u64, Message)>,
    /// Reads, by the offset at which they ended, that may have brought the end of a message not
    /// known of yet.
    reads: VecDeque<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Preface,
    Note,
    Content,
    Nothing,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            preface: None,
            key: 0,
            next: Next::Preface,
            partial: Vec::with_capacity(Preface::LEN),
            offset: 0,
            end: 0,
            last_us: 0,
            notes: 0,
            messages: 0,
            known: VecDeque::new(),
            reads: VecDeque::new(),
        }
    }
}

impl Decoder {
    /// The preface, once it has come.
    pub fn preface(&self) -> Option<&Preface> {
        self.preface.as_ref()
    }

    /// Messages that have come whole and right.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Whether the end has come.
    pub fn is_complete(&self) -> bool {
        self.next == Next::Nothing && self.known.is_empty()
    }

    /// Bytes that have come.
    pub fn offset(&self) -> u64 {
        self.offset + self.partial.len() as u64
    }

    /// Where, and why, a connection that ends here is incomplete; none if it is complete.
    pub fn missing(&self) -> Option<String> {
        let messages = self.messages;
        match self.preface {
            _ if self.is_complete() => None,
            None => {
                let (partial, len) = (self.partial.len(), Preface::LEN);
                Some(format!("after {partial} of {len} bytes of preface"))
            }
            Some(_) => Some(format!(
                "after {messages} messages, before the sender's end"
            )),
        }
    }

    /// Takes the next bytes, which a read brought at `now_ns`, and hands on each message that they
    /// complete. After an error the decoder is of no more use.
    pub fn take(
        &mut self,
        mut bytes: &[u8],
        now_ns: u64,
        mut deliver: impl FnMut(&Preface, Message),
    ) -> Result<(), WrongByte> {
        self.reads
            .push_back((self.offset() + bytes.len() as u64, now_ns));
        while let [first, rest @ ..] = bytes {
            match self.next {
                Next::Content => {
                    let len = usize::try_from(self.end - self.offset).unwrap_or(usize::MAX);
                    let (content, rest) = bytes.split_at(len.min(bytes.len()));
                    self.content(content)?;
                    bytes = rest;
                }
                Next::Preface | Next::Note => {
                    self.partial.push(*first);
                    bytes = rest;
                    self.unit()?;
                }
                Next::Nothing => {
                    let messages = self.notes;
                    let what = format!("data after the end of {messages} messages");
                    return Err(WrongByte {
                        offset: self.offset,
                        what,
                    });
                }
            }
        }
        if let Some(preface) = &self.preface {
            let received = self.offset + self.partial.len() as u64;
            while let Some((end, message)) = self.known.front().filter(|(end, _)| *end <= received)
            {
                while self.reads.front().is_some_and(|(read, _)| read < end) {
                    self.reads.pop_front();
                }
                let received_ns = self.reads.front().map_or(now_ns, |(_, time)| *time);
                deliver(
                    preface,
                    Message {
                        received_ns,
                        ..*message
                    },
                );
                self.messages += 1;
                self.known.pop_front();
            }
        }
        // Of no more use are reads that ended before all that is still to be matched.
        let matched = self.known.front().map_or(self.end, |(end, _)| end - 1);
        while self.reads.front().is_some_and(|(read, _)| *read <= matched) {
            self.reads.pop_front();
        }
        Ok(())
    }

    fn content(&mut self, content: &[u8]) -> Result<(), WrongByte> {
        if let Some((index, expected)) = first_difference(self.key, self.offset, content) {
            return Err(self.wrong(Mismatch {
                what: "content",
                offset: index,
                found: content[index].into(),
                expected: expected.into(),
            }));
        }
        self.offset += content.len() as u64;
        if self.offset == self.end {
            self.next = Next::Note;
        }
        Ok(())
    }

    /// Looks whether `partial` is a whole preface or note.
    fn unit(&mut self) -> Result<(), WrongByte> {
        if self.next == Next::Preface {
            let Ok(bytes) = <&[u8; Preface::LEN]>::try_from(&self.partial[..]) else {
                return Ok(());
            };
            let preface = Preface::from_bytes(bytes).map_err(|wrong| self.wrong(wrong))?;
            self.key = preface.key();
            self.last_us = preface.base_us;
            self.preface = Some(preface);
            self.next = Next::Note;
        } else {
            match Note::read(self.key, self.notes, &self.partial) {
                Reading::Unfinished => return Ok(()),
                Reading::Wrong(what, found, expected) => {
                    let offset = 0;
                    return Err(self.wrong(Mismatch {
                        what,
                        offset,
                        found,
                        expected,
                    }));
                }
                Reading::Note(note) => self.note(note)?,
            }
        }
        self.offset += self.partial.len() as u64;
        self.partial.clear();
        if self.next == Next::Note && self.offset < self.end {
            self.next = Next::Content;
        }
        Ok(())
    }

    fn note(&mut self, note: Note) -> Result<(), WrongByte> {
        match note {
            Note::Message { size, after_us } => {
                self.end += u64::from(size);
                self.last_us = self.last_us.saturating_add(after_us);
                let message = Message {
                    sequence: self.notes as u32,
                    size,
                    sent_ns: self.last_us.saturating_mul(1000),
                    received_ns: 0,
                };
                self.known.push_back((self.end, message));
                self.notes += 1;
            }
            Note::End { messages } => {
                let (what, offset) = ("number of messages", 0);
                Mismatch::unless_equal(what, offset, messages, self.notes)
                    .map_err(|wrong| self.wrong(wrong))?;
                self.next = Next::Nothing;
            }
        }
        Ok(())
    }

    fn wrong(&self, mismatch: Mismatch) -> WrongByte {
        let what = match self.preface {
            None => format!("preface: {mismatch}"),
            Some(_) if mismatch.what == "content" => {
                format!("message {}: {mismatch}", self.notes.saturating_sub(1))
            }
            Some(_) => format!("message {}: {mismatch}", self.notes),
        };
        let offset = self.offset + mismatch.offset as u64;
        WrongByte { offset, what }
    }
}

const _: () = assert!(
    message::MAX_LEN < Preface::LEN,
    "partial has room for either"
);

#[cfg(test)]
mod tests {
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
}
