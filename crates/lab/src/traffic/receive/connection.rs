use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use hdrhistogram::Histogram;
use nix::sys::epoll::EpollFlags;

use super::report::{Fault, FaultKind, StreamReceiveReport};
use super::{ReadMode, ReceiveBehaviour, ResponseMode};
use crate::traffic::latency::{LatencyKind, Record, now_ns, ns, us};
use crate::traffic::wire::{Decoder, Encoder, Message, Preface, Role, WrongByte};

/// State shared by all connections.
pub(super) struct Shared {
    pub(super) buffer: Vec<u8>,
    pub(super) latency_ns: Histogram<u64>,
    pub(super) keep_records: bool,
    pub(super) behaviour: ReceiveBehaviour,
}

/// An accepted connection, which remains in the list after its end.
pub(super) struct Connection {
    /// `None` when closed.
    socket: Option<TcpStream>,
    /// The registered events.
    pub(super) registered: EpollFlags,
    peer: SocketAddr,
    decoder: Decoder,
    answers: Answers,
    records: Vec<Record>,
    bytes: u64,
    /// Data is readable, but may not be read before `next_read_ns`.
    is_delayed: bool,
    next_read_ns: u64,
    /// The sender has closed its half.
    sender_closed: bool,
    fault: Option<Fault>,
}

/// Returns the events that report data or the end.
fn readable() -> EpollFlags {
    EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP
}

impl Connection {
    pub(super) fn new(socket: TcpStream, peer: SocketAddr, response_mode: ResponseMode) -> Self {
        Self {
            socket: Some(socket),
            registered: readable(),
            peer,
            decoder: Decoder::default(),
            answers: Answers::new(response_mode),
            records: Vec::new(),
            bytes: 0,
            is_delayed: false,
            next_read_ns: 0,
            sender_closed: false,
            fault: None,
        }
    }

    pub(super) fn socket(&self) -> Option<&TcpStream> {
        self.socket.as_ref()
    }

    pub(super) fn messages(&self) -> u64 {
        self.decoder.messages()
    }

    /// Returns the events to register.
    pub(super) fn interest(&self) -> EpollFlags {
        let mut events = EpollFlags::empty();
        if !self.is_delayed && !self.sender_closed && !self.answers.is_full() {
            events |= readable();
        }
        if !self.answers.is_idle() {
            events |= EpollFlags::EPOLLOUT;
        }
        events
    }

    /// Handles events of the socket. Returns the time at which to call
    /// [`Connection::read_delayed`], if needed.
    pub(super) fn handle_events(&mut self, events: EpollFlags, shared: &mut Shared) -> Option<u64> {
        if events.contains(EpollFlags::EPOLLOUT) {
            self.answer();
        }
        if events.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP) {
            self.read_all(shared);
        } else if events.intersects(readable()) && !self.is_delayed {
            let due_ns = match shared.behaviour.read_mode {
                ReadMode::Immediate => None,
                ReadMode::Delayed(delay) => Some(now_ns().saturating_add(ns(delay))),
                ReadMode::Rate(_) => Some(self.next_read_ns),
            };
            if let Some(due_ns) = due_ns.filter(|due_ns| *due_ns > now_ns()) {
                self.is_delayed = true;
                return Some(due_ns);
            }
            self.read_delayed(shared);
        }
        None
    }

    /// Reads data that had to wait.
    pub(super) fn read_delayed(&mut self, shared: &mut Shared) {
        self.is_delayed = false;
        match shared.behaviour.read_mode {
            ReadMode::Immediate => {
                self.read(shared.buffer.len(), shared);
            }
            ReadMode::Delayed(_) => self.read_all(shared),
            ReadMode::Rate(rate) => {
                // Read a hundred times per second, so that slow reading is even.
                let max_bytes = usize::try_from(rate / 100).unwrap_or(usize::MAX).max(1);
                let read = self.read(max_bytes.min(shared.buffer.len()), shared) as u128;
                let duration_ns = read * 1_000_000_000 / u128::from(rate.max(1));
                let duration_ns = u64::try_from(duration_ns).unwrap_or(u64::MAX);
                self.next_read_ns = self.next_read_ns.max(now_ns()).saturating_add(duration_ns);
            }
        }
    }

    fn read_all(&mut self, shared: &mut Shared) {
        let max_bytes = shared.buffer.len();
        while self.read(max_bytes, shared) == max_bytes {}
    }

    /// Reads once; closes at the end of the stream or at the first fault. Returns the bytes read.
    fn read(&mut self, max_bytes: usize, shared: &mut Shared) -> usize {
        let (Some(socket), false) = (&mut self.socket, self.sender_closed) else {
            return 0;
        };
        let result = socket.read(&mut shared.buffer[..max_bytes]);
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
                        measured: LatencyKind::Delivery,
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
            let what = format!("message {sequence}: sent after its receipt (different hosts?)");
            return Err(WrongByte { offset, what });
        }
        self.answers.bytes(&buffer[..len]);
        Ok(())
    }

    /// Handles the end of the sender's half.
    fn end(&mut self) {
        self.sender_closed = true;
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
        if self.sender_closed && self.answers.is_idle() {
            self.close(None);
        }
    }

    fn broken(&mut self, error: &std::io::Error) {
        let answered = self.answers.is_idle();
        let fault = self.incomplete(&error.to_string()).or_else(|| {
            (!answered).then(|| Fault {
                kind: FaultKind::Broken,
                offset: self.decoder.offset(),
                what: format!("{error} before all responses were sent"),
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

    /// Returns the results; a connection still open was ended by the receiver's stop.
    pub(super) fn into_parts(self) -> (StreamReceiveReport, Vec<Record>) {
        let fault = match self.socket {
            Some(_) => self.incomplete("receiver stopped"),
            None => self.fault,
        };
        let received = StreamReceiveReport {
            stream: self.decoder.preface().map(|preface| preface.stream),
            peer: self.peer,
            messages: self.decoder.messages(),
            bytes: self.bytes,
            fault,
        };
        (received, self.records)
    }
}

/// Responses are encoded in pieces of at least this many bytes, once the kernel has accepted the
/// previous ones.
const WRITE_LEN: usize = 64 << 10;
/// Nothing is read while this many responses, or 64 times as many bytes of them, wait.
const MAX_WAITING: usize = 4096;

/// Responses of one connection.
pub(super) struct Answers {
    mode: ResponseMode,
    encoder: Option<Encoder>,
    /// Messages since the last one with a response.
    since: u32,
    /// Responses to encode: size, and the time of the message's write.
    waiting: VecDeque<(u32, u64)>,
    /// Encoded bytes; the kernel has not accepted those from `from`.
    out: Vec<u8>,
    from: usize,
    finishing: bool,
}

impl Answers {
    pub(super) fn new(mode: ResponseMode) -> Self {
        Self {
            mode,
            encoder: None,
            since: 0,
            waiting: VecDeque::new(),
            out: Vec::new(),
            from: 0,
            finishing: false,
        }
    }

    /// Handles verified bytes.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        if self.mode == ResponseMode::Echo {
            self.out.extend_from_slice(bytes);
        }
    }

    /// Handles a complete message.
    pub(super) fn message(&mut self, preface: &Preface, message: &Message) {
        let (every, size) = match (preface.answer_every, self.mode) {
            (_, ResponseMode::Echo) | (0, ResponseMode::AsRequested) => return,
            (0, ResponseMode::Every { messages, size }) => (messages, size.unwrap_or(0)),
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

    /// Ends the responses; no more messages follow.
    pub(super) fn finish(&mut self) {
        self.finishing = true;
    }

    /// Returns whether the kernel has accepted all encoded bytes.
    pub(super) fn is_idle(&self) -> bool {
        self.from == self.out.len()
    }

    /// Returns whether too many responses wait to read more messages.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING || self.out.len() - self.from >= MAX_WAITING * 64
    }

    /// Writes as much as the kernel accepts.
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
                if self.finishing {
                    encoder.end(&mut self.out);
                    self.encoder = None;
                }
                return;
            };
            encoder.message(size, sent_ns, &mut self.out);
        }
    }
}
