use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use hdrhistogram::Histogram;
use nix::sys::epoll::EpollFlags;

use super::report::{Fault, FaultKind, StreamReceived};
use super::{Answering, Manner, Reading};
use crate::traffic::latency::{Measured, Record, now_ns, ns, us};
use crate::traffic::wire::{Decoder, Encoder, Message, Preface, Role, WrongByte};

/// What all connections share.
pub(super) struct Shared {
    pub(super) buffer: Vec<u8>,
    pub(super) latency_ns: Histogram<u64>,
    pub(super) keep_records: bool,
    pub(super) manner: Manner,
}

/// One accepted connection, which stays in the list after its end.
pub(super) struct Connection {
    /// `None` when closed.
    socket: Option<TcpStream>,
    /// The events that it is watched for.
    pub(super) watched: EpollFlags,
    peer: SocketAddr,
    decoder: Decoder,
    answers: Answers,
    records: Vec<Record>,
    bytes: u64,
    /// There is something to read, but not before this time.
    waits: bool,
    next_read_ns: u64,
    /// The sender has closed its half.
    ended: bool,
    fault: Option<Fault>,
}

/// Events that mean something to read, or an end.
fn readable() -> EpollFlags {
    EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP
}

impl Connection {
    pub(super) fn new(socket: TcpStream, peer: SocketAddr, answering: Answering) -> Self {
        Self {
            socket: Some(socket),
            watched: readable(),
            peer,
            decoder: Decoder::default(),
            answers: Answers::new(answering),
            records: Vec::new(),
            bytes: 0,
            waits: false,
            next_read_ns: 0,
            ended: false,
            fault: None,
        }
    }

    pub(super) fn socket(&self) -> Option<&TcpStream> {
        self.socket.as_ref()
    }

    pub(super) fn messages(&self) -> u64 {
        self.decoder.messages()
    }

    /// The events to watch it for from now on.
    pub(super) fn interest(&self) -> EpollFlags {
        let mut events = EpollFlags::empty();
        if !self.waits && !self.ended && !self.answers.is_full() {
            events |= readable();
        }
        if !self.answers.is_idle() {
            events |= EpollFlags::EPOLLOUT;
        }
        events
    }

    /// The socket has changed. Returns when to call [`Connection::due`], if that is wanted.
    pub(super) fn changed(&mut self, events: EpollFlags, shared: &mut Shared) -> Option<u64> {
        if events.contains(EpollFlags::EPOLLOUT) {
            self.answer();
        }
        if events.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP) {
            self.read_all(shared);
        } else if events.intersects(readable()) && !self.waits {
            let due_ns = match shared.manner.reading {
                Reading::AtOnce => None,
                Reading::Late(delay) => Some(now_ns().saturating_add(ns(delay))),
                Reading::Rate(_) => Some(self.next_read_ns),
            };
            if let Some(due_ns) = due_ns.filter(|due_ns| *due_ns > now_ns()) {
                self.waits = true;
                return Some(due_ns);
            }
            self.due(shared);
        }
        None
    }

    /// What waited may be read now.
    pub(super) fn due(&mut self, shared: &mut Shared) {
        self.waits = false;
        match shared.manner.reading {
            Reading::AtOnce => {
                self.read(shared.buffer.len(), shared);
            }
            Reading::Late(_) => self.read_all(shared),
            Reading::Rate(rate) => {
                // A hundred times a second, so that slow reading is even.
                let most = usize::try_from(rate / 100).unwrap_or(usize::MAX).max(1);
                let read = self.read(most.min(shared.buffer.len()), shared) as u128;
                let takes = read * 1_000_000_000 / u128::from(rate.max(1));
                let takes = u64::try_from(takes).unwrap_or(u64::MAX);
                self.next_read_ns = self.next_read_ns.max(now_ns()).saturating_add(takes);
            }
        }
    }

    fn read_all(&mut self, shared: &mut Shared) {
        let most = shared.buffer.len();
        while self.read(most, shared) == most {}
    }

    /// Reads once, and closes at the end of the stream or at the first fault. Returns the bytes.
    fn read(&mut self, most: usize, shared: &mut Shared) -> usize {
        let (Some(socket), false) = (&mut self.socket, self.ended) else {
            return 0;
        };
        let result = socket.read(&mut shared.buffer[..most]);
        let now_ns = now_ns();
        match result {
            Ok(0) => self.end(),
            Ok(len) => {
                self.bytes += len as u64;
                match self.verify(len, now_ns, shared) {
                    Ok(()) => self.answer(),
                    Err(WrongByte { offset, what }) => self.close(Some(Fault {
                        kind: FaultKind::Corrupt,
                        offset,
                        what,
                    })),
                }
                return len;
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
                _ => self.broken(&error),
            },
        }
        0
    }

    fn verify(&mut self, len: usize, now_ns: u64, shared: &mut Shared) -> Result<(), WrongByte> {
        let Shared {
            buffer,
            latency_ns,
            keep_records,
            ..
        } = shared;
        let (records, answers) = (&mut self.records, &mut self.answers);
        let mut early = None;
        self.decoder
            .take(&buffer[..len], now_ns, |preface, message| {
                let Some(latency) = message.received_ns.checked_sub(message.sent_ns) else {
                    early.get_or_insert(message.sequence);
                    return;
                };
                latency_ns.saturating_record(latency);
                if *keep_records {
                    records.push(Record {
                        measured: Measured::Delivery,
                        stream: preface.stream,
                        sequence: message.sequence,
                        size: message.size,
                        sent_ns: message.sent_ns,
                        latency_us: us(latency),
                    });
                }
                answers.message(preface, &message);
            })?;
        if let Some(sequence) = early {
            let offset = self.decoder.offset();
            let what = format!("message {sequence}: sent after its receipt (is it the same host?)");
            return Err(WrongByte { offset, what });
        }
        self.answers.bytes(&buffer[..len]);
        Ok(())
    }

    /// The sender has closed its half.
    fn end(&mut self) {
        self.ended = true;
        if self.decoder.missing().is_some() {
            let fault = self.incomplete("closed");
            return self.close(fault);
        }
        self.answers.finish();
        self.answer();
    }

    fn answer(&mut self) {
        let Some(socket) = &self.socket else {
            return;
        };
        if let Err(error) = self.answers.write(socket) {
            return self.broken(&error);
        }
        if self.ended && self.answers.is_idle() {
            self.close(None);
        }
    }

    fn broken(&mut self, error: &std::io::Error) {
        let answered = self.answers.is_idle();
        let fault = self.incomplete(&error.to_string()).or_else(|| {
            (!answered).then(|| Fault {
                kind: FaultKind::Broken,
                offset: self.decoder.offset(),
                what: format!("{error} before all answers were sent"),
            })
        });
        self.close(fault.map(|fault| Fault {
            kind: FaultKind::Broken,
            ..fault
        }));
    }

    fn incomplete(&self, end: &str) -> Option<Fault> {
        self.decoder.missing().map(|missing| Fault {
            kind: FaultKind::Incomplete,
            offset: self.decoder.offset(),
            what: format!("{end} {missing}"),
        })
    }

    fn close(&mut self, fault: Option<Fault>) {
        self.fault = fault;
        self.socket = None;
    }

    /// The end, of a connection still open by the receiver's stop.
    pub(super) fn into_parts(self) -> (StreamReceived, Vec<Record>) {
        let fault = match self.socket {
            Some(_) => self.incomplete("receiver stopped"),
            None => self.fault,
        };
        let received = StreamReceived {
            stream: self.decoder.preface().map(|preface| preface.stream),
            peer: self.peer,
            messages: self.decoder.messages(),
            bytes: self.bytes,
            fault,
        };
        (received, self.records)
    }
}

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
