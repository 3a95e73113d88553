use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};

use super::Answering;
use crate::traffic::wire::{Encoder, Message, Preface, Role};

/// Answers are made in pieces of at least this many bytes, once the kernel has taken those before.
const WRITE_LEN: usize = 64 << 10;
/// Nothing is read while so many answers wait, or so many bytes of them.
const MAX_WAITING: usize = 4096;

/// What goes back on one connection.
pub(super) struct Answers {
    how: Answering,
    encoder: Option<Encoder>,
    /// Messages since the last one answered.
    since: u32,
    /// Answers whose bytes are not made yet: size, and when the message was handed over.
    waiting: VecDeque<(u32, u64)>,
    /// Bytes that the kernel has not taken, from `from` on.
    out: Vec<u8>,
    from: usize,
    ending: bool,
}

impl Answers {
    pub(super) fn new(how: Answering) -> Self {
        Self {
            how,
            encoder: None,
            since: 0,
            waiting: VecDeque::new(),
            out: Vec::new(),
            from: 0,
            ending: false,
        }
    }

    /// These bytes have come, and are right.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        if self.how == Answering::Echo {
            self.out.extend_from_slice(bytes);
        }
    }

    /// This message has come whole.
    pub(super) fn message(&mut self, preface: &Preface, message: &Message) {
        let (every, size) = match (preface.answer_every, self.how) {
            (_, Answering::Echo) | (0, Answering::AsAsked) => return,
            (0, Answering::Every { messages, size }) => (messages, size.unwrap_or(0)),
            (every, _) => (every, preface.answer_size),
        };
        self.encoder.get_or_insert_with(|| {
            Encoder::new(Preface {
                role: Role::Answerer,
                stream: preface.stream,
                seed: preface.seed,
                base_us: preface.base_us,
                answer_every: 0,
                answer_size: 0,
            })
        });
        self.since += 1;
        if self.since >= every {
            self.since = 0;
            let size = if size == 0 { message.size } else { size };
            self.waiting.push_back((size, message.sent_ns));
        }
    }

    /// No more messages will come.
    pub(super) fn finish(&mut self) {
        self.ending = true;
    }

    /// Whether the kernel has taken all there is.
    pub(super) fn is_idle(&self) -> bool {
        self.from == self.out.len()
    }

    /// Whether so much waits that no more should be read.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING || self.out.len() - self.from >= MAX_WAITING * 64
    }

    /// Gives the kernel as much as it takes.
    pub(super) fn write(&mut self, mut to: impl Write) -> io::Result<()> {
        loop {
            if self.is_idle() {
                self.out.clear();
                self.from = 0;
                self.encode();
            }
            let rest = self.out.get(self.from..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(());
            }
            match to.write(rest) {
                Ok(len) => self.from += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn encode(&mut self) {
        let Some(encoder) = &mut self.encoder else {
            return;
        };
        while self.out.len() < WRITE_LEN {
            let Some((size, sent_ns)) = self.waiting.pop_front() else {
                if self.ending {
                    encoder.end(&mut self.out);
                    self.encoder = None;
                }
                return;
            };
            encoder.message(size, sent_ns, &mut self.out);
        }
    }
}
