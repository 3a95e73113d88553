use std::collections::VecDeque;

use super::content;
use super::note::{self, Note};
use super::{MAX_SIZE, Preface};

/// Makes the bytes of one direction of a connection.
#[derive(Debug)]
pub struct Encoder {
    preface: Preface,
    key: u64,
    /// Messages begun.
    messages: u64,
    /// Bytes made.
    offset: u64,
    last_us: u64,
    /// The preface's and the notes' bytes that have found no room in a message yet.
    waiting: VecDeque<u8>,
}

impl Encoder {
    /// Begins with this preface.
    pub fn new(preface: Preface) -> Self {
        Self {
            key: preface.key(),
            messages: 0,
            offset: 0,
            last_us: preface.base_us,
            waiting: preface.to_bytes().into(),
            preface,
        }
    }

    /// The preface.
    pub fn preface(&self) -> &Preface {
        &self.preface
    }

    /// Appends a message of exactly `size` bytes, 1 to [`MAX_SIZE`], that was handed over at
    /// `sent_ns` (`CLOCK_MONOTONIC`).
    pub fn message(&mut self, size: u32, sent_ns: u64, to: &mut Vec<u8>) {
        let size = size.clamp(1, MAX_SIZE);
        let after_us = self.after_us(sent_ns);
        let note = Note::Message { size, after_us };
        note.append(self.key, self.messages, &mut self.waiting);
        self.messages += 1;
        self.last_us += after_us;
        let size = size as usize;
        let notes = self.waiting.len().min(size);
        to.extend(self.waiting.drain(..notes));
        self.offset += notes as u64;
        if notes < size {
            content::append(self.key, self.offset, size - notes, to);
            self.offset += (size - notes) as u64;
        }
    }

    /// The least size, at least `size`, with which a message handed over at `sent_ns` is known to
    /// the other end as soon as it has come.
    pub fn whole_size(&self, size: u32, sent_ns: u64) -> u32 {
        let after_us = self.after_us(sent_ns);
        let mut size = size.clamp(1, MAX_SIZE);
        loop {
            let mut note = Vec::with_capacity(note::MAX_LEN);
            Note::Message { size, after_us }.append(self.key, self.messages, &mut note);
            let needed = (self.waiting.len() + note.len()) as u32;
            if needed <= size || size == MAX_SIZE {
                return size;
            }
            size = needed.min(MAX_SIZE);
        }
    }

    fn after_us(&self, sent_ns: u64) -> u64 {
        (sent_ns / 1000).saturating_sub(self.last_us)
    }

    /// Appends the end, behind whatever had found no room; no message may follow.
    pub fn end(&mut self, to: &mut Vec<u8>) {
        let messages = self.messages;
        Note::End { messages }.append(self.key, messages, &mut self.waiting);
        self.offset += self.waiting.len() as u64;
        to.extend(self.waiting.drain(..));
    }
}
