use std::collections::VecDeque;

use super::message::{Note, ParsedNote};
use super::{Mismatch, Preface, first_difference, message};

/// A completely received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The message's number within the stream, from 0.
    pub sequence: u32,
    /// The message's bytes.
    pub size: u32,
    /// Time of the application's write, `CLOCK_MONOTONIC` in ns, rounded to microseconds.
    pub sent_ns: u64,
    /// End of the read that returned the last byte, `CLOCK_MONOTONIC` in ns.
    pub received_ns: u64,
}

/// A wrong byte: its offset in the connection, and a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongByte {
    /// Bytes from the start of the connection.
    pub offset: u64,
    /// The received and expected value.
    pub what: String,
}

/// Verifies the bytes of one direction of a connection, in pieces of any size.
#[derive(Debug)]
pub struct Decoder {
    preface: Option<Preface>,
    key: u64,
    next: Next,
    /// The incomplete bytes of a preface or note.
    partial: Vec<u8>,
    /// Verified bytes, without `partial`.
    offset: u64,
    /// Offset of the end of the last announced message.
    end: u64,
    last_us: u64,
    /// Number of notes, and of complete messages.
    notes: u64,
    messages: u64,
    /// Announced messages whose last byte is missing or not matched with its read.
    announced: VecDeque<(u64, Message)>,
    /// Reads, with the offset of their end, that may contain the end of a message without a note
    /// yet.
    reads: VecDeque<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Preface,
    Note,
    Content,
    End,
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
            announced: VecDeque::new(),
            reads: VecDeque::new(),
        }
    }
}

impl Decoder {
    /// Returns the preface once it is complete.
    pub fn preface(&self) -> Option<&Preface> {
        self.preface.as_ref()
    }

    /// Returns the number of complete, correct messages.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Returns whether the end has arrived.
    pub fn is_complete(&self) -> bool {
        self.next == Next::End && self.announced.is_empty()
    }

    /// Returns the number of received bytes.
    pub fn offset(&self) -> u64 {
        self.offset + self.partial.len() as u64
    }

    /// Returns where and why a connection that ends here is incomplete; `None` if it is complete.
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

    /// Decodes the next bytes, read at `now_ns`, and delivers each message that they complete.
    /// After an error, the decoder cannot be used any more.
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
                    self.parse_partial()?;
                }
                Next::End => {
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
            while let Some((end, message)) =
                self.announced.front().filter(|(end, _)| *end <= received)
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
                self.announced.pop_front();
            }
        }
        // Remove reads that ended before all unmatched messages.
        let matched = self.announced.front().map_or(self.end, |(end, _)| end - 1);
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

    /// Decodes `partial` if it is a complete preface or note.
    fn parse_partial(&mut self) -> Result<(), WrongByte> {
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
                ParsedNote::Incomplete => return Ok(()),
                ParsedNote::Wrong(what, found, expected) => {
                    let offset = 0;
                    return Err(self.wrong(Mismatch {
                        what,
                        offset,
                        found,
                        expected,
                    }));
                }
                ParsedNote::Note(note) => self.note(note)?,
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
            Note::Message { size, delta_us } => {
                self.end += u64::from(size);
                self.last_us = self.last_us.saturating_add(delta_us);
                let message = Message {
                    sequence: self.notes as u32,
                    size,
                    sent_ns: self.last_us.saturating_mul(1000),
                    received_ns: 0,
                };
                self.announced.push_back((self.end, message));
                self.notes += 1;
            }
            Note::End { messages } => {
                let (what, offset) = ("number of messages", 0);
                Mismatch::check_equal(what, offset, messages, self.notes)
                    .map_err(|wrong| self.wrong(wrong))?;
                self.next = Next::End;
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

    /// Returns a complete connection with one message per millisecond.
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

    /// Decodes the bytes in pieces of this length; each piece arrives at the time of its last
    /// byte's offset.
    fn decode(bytes: &[u8], piece: usize) -> Result<(Decoder, Vec<Message>), WrongByte> {
        let mut decoder = Decoder::default();
        let mut messages = Vec::new();
        let mut received = 0;
        for piece in bytes.chunks(piece) {
            received += piece.len();
            decoder.take(piece, received as u64, |_, message| messages.push(message))?;
        }
        Ok((decoder, messages))
    }

    const MIXED: [u32; 12] = [1, 1, 60, 3, 200, 1, 1, 1, 1, 1, 2, 5];

    #[test]
    fn messages_keep_size_and_times_in_any_pieces() {
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
    fn every_wrong_connection_byte_is_detected() {
        let right = connection(&MIXED);
        for i in 0..right.len() {
            let mut bytes = right.clone();
            bytes[i] ^= 0x04;
            assert!(decode(&bytes, 7).is_err(), "byte {i}");
        }
    }

    #[test]
    fn missing_repeated_and_extra_bytes_are_detected() {
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
    fn truncated_connection_is_incomplete() {
        let whole = connection(&MIXED);
        for len in 0..whole.len() {
            let (decoder, _) = decode(&whole[..len], 9).unwrap();
            assert!(decoder.missing().is_some(), "{len} bytes");
            assert_eq!(decoder.offset(), len as u64);
        }
    }

    #[test]
    fn decoder_forgets_finished_reads_of_large_message() {
        let bytes = connection(&[100_000]);
        let mut decoder = Decoder::default();
        for piece in bytes[..90_000].chunks(100) {
            decoder.take(piece, 1, |_, _| {}).unwrap();
            assert!(decoder.reads.len() <= 2);
        }
    }

    #[test]
    fn message_of_whole_size_is_decoded_on_arrival() {
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
