use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};

use super::connect::{Connection, Opening, Together};
use super::report::{Measurements, StreamSent, Work};
use super::source::{Next, Source};
use crate::traffic::latency::{now_ns, us};
use crate::traffic::poller::Poller;
use crate::traffic::socket_info::{Bundled, TcpInfo};
use crate::traffic::wire::{Decoder, Encoder, Preface};

/// A write offers whole messages, and no more once they are this long together.
const WRITE_LEN: usize = 64 << 10;

/// One connection at work.
pub(super) struct Stream<'a> {
    pub(super) source: Source<'a>,
    /// Whether its next message stands among those due.
    pub(super) scheduled: bool,
    socket: Socket,
    /// If it connects with others, when; and it starts with them.
    together: Option<Together>,
    /// Whether it may send.
    started: bool,
    encoder: Encoder,
    /// Messages that the kernel has not wholly taken: when handed over, and the size.
    queue: VecDeque<(u64, u32)>,
    /// The first of them whose bytes are made already.
    encoded: usize,
    /// Bytes made that the kernel did not take, from `rest_from` on.
    rest: Vec<u8>,
    rest_from: usize,
    /// Bytes of the first message in the queue already taken.
    taken: usize,
    last_message_seen: bool,
    end_encoded: bool,
    half_closed: bool,
    answers: Answers,
    report: StreamSent,
    /// False once the connection has ended, well or not.
    open: bool,
}

/// A stream's end of its connection.
enum Socket {
    /// Connected before the stream began.
    Ready(TcpStream),
    /// To be made when the stream starts.
    ToMake(Opening),
    /// Made by the stream, at this time, and whether it is known to be connected.
    Own(TcpStream, u64, bool),
    /// Made by the stream, and closed.
    Done,
}

impl<'a> Stream<'a> {
    pub(super) fn new(
        connection: Connection,
        preface: Preface,
        group: usize,
        source: Source<'a>,
    ) -> Self {
        Self {
            source,
            scheduled: false,
            queue: VecDeque::new(),
            encoded: 0,
            rest: Vec::new(),
            rest_from: 0,
            taken: 0,
            last_message_seen: false,
            end_encoded: false,
            half_closed: false,
            answers: Answers::new(&preface),
            report: StreamSent {
                connected: matches!(connection, Connection::Made(_)),
                ..StreamSent::new(preface.stream, group)
            },
            encoder: Encoder::new(preface),
            together: connection.together(),
            started: connection.together().is_none(),
            socket: match connection {
                Connection::Made(socket) => Socket::Ready(socket),
                Connection::ToMake(opening, _) => Socket::ToMake(opening),
                // Those are at work elsewhere.
                Connection::Datagrams(_) => Socket::Done,
            },
            open: true,
        }
    }

    /// Begins to connect, where it has not yet; the poller will tell by this number.
    pub(super) fn open(&mut self, poller: &Poller, number: usize, now_ns: u64) {
        let Socket::ToMake(opening) = &self.socket else {
            return;
        };
        match opening.open(poller, number) {
            Ok(socket) => self.socket = Socket::Own(socket, now_ns, false),
            Err(why) => self.fail(format!("never connected: {why}")),
        }
    }

    pub(super) fn group(&self) -> usize {
        self.report.group
    }

    /// What comes next of it: its connection, a message, or nothing any more.
    pub(super) fn next(&self, now_ns: u64) -> Next {
        match (&self.socket, self.together) {
            (Socket::ToMake(_), Some(together)) => Next::At(together.connects_ns),
            _ if !self.started => Next::Waiting,
            _ => self.source.next(now_ns, self.is_idle()),
        }
    }

    pub(super) fn has_started(&self) -> bool {
        self.started
    }

    /// Until when others of its group wait for it, in nanoseconds since the barrier opened, as long as
    /// they do.
    pub(super) fn awaited_until(&self) -> Option<u64> {
        let is_connected = self.socket.connected().is_some();
        let together = self.together.filter(|_| self.open && !is_connected);
        Some(together?.latest_ns)
    }

    /// It is connected, and awaits no others any more; true if it starts by that.
    pub(super) fn start(&mut self, now_ns: u64) -> bool {
        let is_connected = self.open && self.socket.connected().is_some();
        let starts = is_connected && !self.started;
        if let Some(together) = self.together.filter(|_| starts) {
            self.source
                .delay(now_ns.saturating_sub(together.connects_ns));
            self.started = true;
        }
        starts
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Whether more messages may come.
    pub(super) fn is_active(&self) -> bool {
        self.open && !self.last_message_seen
    }

    /// Whether the kernel has taken all there was.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// The application hands over the next message at `now_ns`.
    pub(super) fn hand_over(&mut self, now_ns: u64, work: &mut Work) {
        let size = self.source.take();
        self.queue.push_back((now_ns, size));
        // Behind other messages nothing can be written before the socket says so.
        if self.queue.len() == 1 {
            self.write(work);
        }
        let connected = self.socket.connected().is_some();
        let blocked = connected && !self.queue.is_empty() && self.source.can_be_late();
        self.report.blocked_writes += u64::from(blocked);
    }

    /// No more messages will come: half-closes as soon as the kernel has taken all.
    pub(super) fn finish(&mut self, work: &mut Work) {
        if self.is_active() {
            self.last_message_seen = true;
            if !self.started && matches!(self.socket, Socket::Own(_, _, false)) {
                return self.fail("never connected: no answer until the end".to_owned());
            }
            if let Socket::ToMake(_) = self.socket {
                self.open = false;
            }
            self.write(work);
            self.half_close();
        }
    }

    /// The socket has changed.
    pub(super) fn ready(&mut self, work: &mut Work, barrier_ns: u64) {
        if let Socket::Own(socket, _, connected) = &mut self.socket {
            let is_first = !*connected && !self.started;
            *connected = true;
            if is_first && let Some(why) = socket.take_error().unwrap_or_else(Some) {
                return self.fail(format!("never connected: {why}"));
            }
        }
        if self.open {
            self.write(work);
            self.half_close();
            self.read(work, barrier_ns);
        }
    }

    /// The end of the stream's work, whether or not the receiver has closed.
    pub(super) fn into_report(mut self) -> StreamSent {
        if self.open {
            let queued = self.queue.len();
            self.fail(format!(
                "the receiver did not close in time, {queued} messages still queued here"
            ));
        }
        self.report
    }

    fn write(&mut self, work: &mut Work) {
        while self.open
            && let Some(socket) = self.socket.connected()
        {
            let socket = socket.as_raw_fd();
            let rest = self.rest_from < self.rest.len();
            if !rest {
                self.rest.clear();
                self.rest_from = 0;
                work.out.clear();
                self.encode(&mut work.out);
            }
            let bytes = if rest {
                &self.rest[self.rest_from..]
            } else {
                &work.out[..]
            };
            if bytes.is_empty() {
                return;
            }
            // The end goes into the segment that closes, which follows at once.
            let more = match self.end_encoded {
                true => MsgFlags::from_bits_retain(libc::MSG_MORE),
                false => MsgFlags::empty(),
            };
            let result = send(socket, bytes, MsgFlags::MSG_NOSIGNAL | more);
            let len = match result {
                Ok(len) => len,
                Err(Errno::EAGAIN) => 0,
                Err(Errno::EINTR) => continue,
                Err(error) => return self.broke(error),
            };
            let blocked = len < bytes.len();
            match rest {
                true => self.rest_from += len,
                false => self.rest.extend_from_slice(&work.out[len..]),
            }
            self.account(len);
            if blocked && result.is_err() {
                return;
            }
        }
    }

    /// Makes the bytes of the next messages in the queue, or of the end.
    fn encode(&mut self, to: &mut Vec<u8>) {
        let at_once = self.source.wants_answers().is_some();
        for (sent_ns, size) in self.queue.iter_mut().skip(self.encoded) {
            if at_once {
                *size = self.encoder.whole_size(*size, *sent_ns);
            }
            self.encoder.message(*size, *sent_ns, to);
            self.encoded += 1;
            if to.len() >= WRITE_LEN {
                return;
            }
        }
        if self.last_message_seen && !self.end_encoded {
            self.encoder.end(to);
            self.end_encoded = true;
        }
    }

    /// The kernel took `len` more bytes.
    fn account(&mut self, len: usize) {
        self.report.connected |= len > 0;
        self.report.bytes += len as u64;
        self.taken += len;
        while let Some(&(_, size)) = self
            .queue
            .front()
            .filter(|(_, size)| self.taken >= *size as usize)
        {
            self.taken -= size as usize;
            self.queue.pop_front();
            self.encoded -= 1;
            self.report.messages += 1;
        }
    }

    fn half_close(&mut self) {
        let all_taken = self.end_encoded && self.rest_from == self.rest.len();
        if !self.open || self.half_closed || !all_taken {
            return;
        }
        let Some(socket) = self.socket.connected() else {
            return;
        };
        match socket.shutdown(Shutdown::Write) {
            Ok(()) => self.half_closed = true,
            Err(error) => self.broke(error),
        }
    }

    /// Reads answers, if the receiver sends any, and its close.
    fn read(&mut self, work: &mut Work, barrier_ns: u64) {
        while self.open
            && let Some(mut socket) = self.socket.connected()
        {
            match socket.read(&mut work.input) {
                Ok(0) if !self.half_closed => {
                    self.fail("the receiver closed before the end".to_owned());
                }
                Ok(0) => match self.answers.missing() {
                    None => self.end(),
                    Some(missing) => self.fail(format!("the answers end {missing}")),
                },
                Ok(len) => {
                    let bytes = &work.input[..len];
                    let taken = self.answers.take(bytes, &mut work.measured, |now_ns| {
                        self.source.answered(now_ns.saturating_sub(barrier_ns));
                    });
                    if let Err(wrong) = taken {
                        self.fail(wrong);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.broke(error),
            }
        }
    }

    fn broke(&mut self, error: impl Display) {
        self.fail(format!("the connection to the receiver broke: {error}"));
    }

    fn fail(&mut self, error: String) {
        self.report.error = Some(error);
        self.end();
    }

    fn end(&mut self) {
        self.open = false;
        self.report.answers = self.answers.messages();
        if let Some(socket) = self.socket.connected() {
            self.report.tcp = TcpInfo::read(socket).unwrap_or_default();
            self.report.bundling = Bundled::read(socket);
        }
        // Of many flows only those under way need a file descriptor.
        if let Socket::Own(_, opened_ns, _) = self.socket {
            let is_flow = self.together.is_none();
            let completed = is_flow && self.report.error.is_none();
            let completion_us = || us(now_ns().saturating_sub(opened_ns));
            self.report.completion_us = completed.then(completion_us);
            self.socket = Socket::Done;
        }
    }
}

impl Socket {
    /// The socket, once it is connected, or has failed to.
    fn connected(&self) -> Option<&TcpStream> {
        match self {
            Self::Ready(socket) | Self::Own(socket, _, true) => Some(socket),
            Self::Own(_, _, false) | Self::ToMake(_) | Self::Done => None,
        }
    }
}

/// Verifies what comes back on a connection: answers, or the very bytes that were sent.
pub(super) struct Answers {
    stream: u32,
    seed: u64,
    /// `None` until the first byte.
    decoder: Option<Box<Decoder>>,
}

impl Answers {
    pub(super) fn new(sent: &Preface) -> Self {
        Self {
            stream: sent.stream,
            seed: sent.seed,
            decoder: None,
        }
    }

    /// Takes bytes just read; `answered` hears of each answer that they complete, and when.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        measured: &mut Measurements,
        mut answered: impl FnMut(u64),
    ) -> Result<(), String> {
        let now_ns = now_ns();
        let (stream, seed) = (self.stream, self.seed);
        let decoder = self.decoder.get_or_insert_default();
        let taken = decoder.take(bytes, now_ns, |_, answer| {
            measured.answer(stream, answer);
            answered(answer.received_ns);
        });
        taken.map_err(|wrong| format!("the answers' byte {}: {}", wrong.offset, wrong.what))?;
        match decoder.preface() {
            Some(preface) if (preface.stream, preface.seed) != (stream, seed) => Err(format!(
                "the answers are those of stream {} with seed {}",
                preface.stream, preface.seed
            )),
            _ => Ok(()),
        }
    }

    /// Answers that have come whole.
    pub(super) fn messages(&self) -> u64 {
        self.decoder
            .as_ref()
            .map_or(0, |decoder| decoder.messages())
    }

    /// Where, and why, answers that end here are incomplete; none if they are not, or none came.
    pub(super) fn missing(&self) -> Option<String> {
        self.decoder.as_ref()?.missing()
    }
}
