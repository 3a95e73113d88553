use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};

use super::connect::{Connection, GroupConnect, PendingConnection, was_unanswered};
use super::report::{Measurements, StreamSendReport, ThreadState};
use super::source::{Next, Source};
use crate::traffic::latency::{now_ns, us};
use crate::traffic::poller::Poller;
use crate::traffic::socket_info::{BundlingStats, TcpInfo};
use crate::traffic::wire::{Decoder, Encoder, Preface};

/// A write combines whole messages up to this many bytes.
const WRITE_LEN: usize = 64 << 10;

/// The state of one connection.
pub(super) struct Stream<'a> {
    pub(super) source: Source<'a>,
    /// Whether the next message is scheduled.
    pub(super) scheduled: bool,
    socket: Socket,
    /// The connection that is made again if it is not answered.
    reconnect_to: Option<PendingConnection>,
    /// Connection times, if the stream connects together with others.
    group_connect: Option<GroupConnect>,
    /// Whether it may send.
    started: bool,
    encoder: Encoder,
    /// Messages that the kernel has not accepted completely: time of the write, and size.
    queue: VecDeque<(u64, u32)>,
    /// Number of encoded messages in the queue.
    encoded: usize,
    /// Encoded bytes; the kernel has not accepted those from `rest_from`.
    rest: Vec<u8>,
    rest_from: usize,
    /// Accepted bytes of the first message in the queue.
    taken: usize,
    last_message_seen: bool,
    end_encoded: bool,
    half_closed: bool,
    answers: Answers,
    report: StreamSendReport,
    /// False after the connection's end or failure.
    open: bool,
}

/// A stream's socket.
enum Socket {
    /// Connected before the stream started.
    Ready(TcpStream),
    /// To be connected when the stream starts.
    Pending(PendingConnection),
    /// Connected by the stream: the start time, and whether the connection is known to be
    /// established.
    Own(TcpStream, u64, bool),
    /// Connected by the stream, and closed.
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
            report: StreamSendReport {
                connected: matches!(connection, Connection::Established(_)),
                ..StreamSendReport::new(preface.stream, group)
            },
            encoder: Encoder::new(preface),
            group_connect: connection.group_connect(),
            started: connection.group_connect().is_none(),
            reconnect_to: None,
            socket: match connection {
                Connection::Established(socket) => Socket::Ready(socket),
                Connection::Pending(pending, _) => Socket::Pending(pending),
                // Another loop handles datagrams.
                Connection::Datagrams(_) => Socket::Done,
            },
            open: true,
        }
    }

    /// Starts to connect, if not yet done; registers the socket with the poller under this number.
    pub(super) fn open(&mut self, poller: &Poller, number: usize, now_ns: u64) {
        let Socket::Pending(pending) = &self.socket else {
            return;
        };
        match pending.open(poller, number) {
            Ok(socket) => {
                self.reconnect_to = pending.reconnect.then(|| pending.clone());
                self.socket = Socket::Own(socket, now_ns, false);
            }
            Err(why) => self.fail(format!("never connected: {why}")),
        }
    }

    pub(super) fn group(&self) -> usize {
        self.report.group
    }

    /// Returns the stream's next action: its connection, a message, or its end.
    pub(super) fn next(&self, now_ns: u64) -> Next {
        match (&self.socket, self.group_connect) {
            (Socket::Pending(_), Some(group_connect)) => Next::At(group_connect.connect_at_ns),
            _ if !self.started => Next::Waiting,
            _ => self.source.next(now_ns, self.is_idle()),
        }
    }

    pub(super) fn has_started(&self) -> bool {
        self.started
    }

    /// Returns the time until which other streams of its group wait for it, in nanoseconds since
    /// the barrier opened; `None` if they do not wait.
    pub(super) fn wait_deadline(&self) -> Option<u64> {
        let is_connected = self.socket.connected().is_some();
        let group_connect = self.group_connect.filter(|_| self.open && !is_connected);
        Some(group_connect?.start_deadline_ns)
    }

    /// Starts the stream if it is connected; it no longer waits for others. Returns whether it
    /// started.
    pub(super) fn start(&mut self, now_ns: u64) -> bool {
        let is_connected = self.open && self.socket.connected().is_some();
        let starts = is_connected && !self.started;
        if let Some(group_connect) = self.group_connect.filter(|_| starts) {
            self.source
                .delay(now_ns.saturating_sub(group_connect.connect_at_ns));
            self.started = true;
        }
        starts
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Returns whether more messages may follow.
    pub(super) fn is_active(&self) -> bool {
        self.open && !self.last_message_seen
    }

    /// Returns whether the kernel has accepted all data.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Writes the next message of the application at `now_ns`.
    pub(super) fn hand_over(&mut self, now_ns: u64, state: &mut ThreadState) {
        let size = self.source.take();
        self.queue.push_back((now_ns, size));
        // After queued messages, nothing can be written before the socket reports it.
        if self.queue.len() == 1 {
            self.write(state);
        }
        let connected = self.socket.connected().is_some();
        let blocked = connected && !self.queue.is_empty() && self.source.can_be_late();
        self.report.blocked_writes += u64::from(blocked);
    }

    /// Ends the messages: half-closes as soon as the kernel has accepted everything.
    pub(super) fn finish(&mut self, state: &mut ThreadState) {
        if self.is_active() {
            self.last_message_seen = true;
            if !self.started && matches!(self.socket, Socket::Own(_, _, false)) {
                return self.fail("never connected: no answer until the end".to_owned());
            }
            if let Socket::Pending(_) = self.socket {
                self.open = false;
            }
            self.write(state);
            self.half_close();
        }
    }

    /// Handles events of the socket.
    pub(super) fn ready(&mut self, state: &mut ThreadState, barrier_ns: u64) {
        if let Socket::Own(socket, _, connected) = &mut self.socket {
            let is_first = !*connected && !self.started;
            *connected = true;
            if is_first && let Some(why) = socket.take_error().unwrap_or_else(Some) {
                if let Some(pending) = self.reconnect_to.take()
                    && was_unanswered(&why)
                {
                    self.socket = Socket::Pending(pending);
                    return;
                }
                return self.fail(format!("never connected: {why}"));
            }
        }
        if self.open {
            self.write(state);
            self.half_close();
            self.read(state, barrier_ns);
        }
    }

    /// Returns the stream's report, whether or not the receiver has closed.
    pub(super) fn into_report(mut self) -> StreamSendReport {
        if self.open {
            let queued = self.queue.len();
            self.fail(format!(
                "the receiver did not close in time; {queued} messages are still queued here"
            ));
        }
        self.report
    }

    fn write(&mut self, state: &mut ThreadState) {
        while self.open
            && let Some(socket) = self.socket.connected()
        {
            let socket = socket.as_raw_fd();
            let rest = self.rest_from < self.rest.len();
            if !rest {
                self.rest.clear();
                self.rest_from = 0;
                state.out.clear();
                self.encode(&mut state.out);
            }
            let bytes = if rest {
                &self.rest[self.rest_from..]
            } else {
                &state.out[..]
            };
            if bytes.is_empty() {
                return;
            }
            // The end shares a segment with the FIN, which follows immediately.
            let more = match self.end_encoded {
                true => MsgFlags::from_bits_retain(libc::MSG_MORE),
                false => MsgFlags::empty(),
            };
            let result = send(socket, bytes, MsgFlags::MSG_NOSIGNAL | more);
            let len = match result {
                Ok(len) => len,
                Err(Errno::EAGAIN) => 0,
                Err(Errno::EINTR) => continue,
                Err(error) => return self.connection_broken(error),
            };
            let blocked = len < bytes.len();
            match rest {
                true => self.rest_from += len,
                false => self.rest.extend_from_slice(&state.out[len..]),
            }
            self.record_accepted(len);
            if blocked && result.is_err() {
                return;
            }
        }
    }

    /// Encodes the next messages in the queue, or the end.
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

    /// Records that the kernel accepted `len` more bytes.
    fn record_accepted(&mut self, len: usize) {
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
            Err(error) => self.connection_broken(error),
        }
    }

    /// Reads responses, if the receiver sends any, and its close.
    fn read(&mut self, state: &mut ThreadState, barrier_ns: u64) {
        while self.open
            && let Some(mut socket) = self.socket.connected()
        {
            match socket.read(&mut state.input) {
                Ok(0) if !self.half_closed => {
                    self.fail("the receiver closed before the end".to_owned());
                }
                Ok(0) => match self.answers.missing() {
                    None => self.end(),
                    Some(missing) => self.fail(format!("the responses end {missing}")),
                },
                Ok(len) => {
                    let bytes = &state.input[..len];
                    let taken = self.answers.take(bytes, &mut state.measured, |now_ns| {
                        self.source.answered(now_ns.saturating_sub(barrier_ns));
                    });
                    if let Err(wrong) = taken {
                        self.fail(wrong);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.connection_broken(error),
            }
        }
    }

    fn connection_broken(&mut self, error: impl Display) {
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
            self.report.bundling = BundlingStats::read(socket);
        }
        // Only active flows need a file descriptor.
        if let Socket::Own(_, opened_ns, _) = self.socket {
            let is_flow = self.group_connect.is_none();
            let completed = is_flow && self.report.error.is_none();
            let completion_us = || us(now_ns().saturating_sub(opened_ns));
            self.report.completion_us = completed.then(completion_us);
            self.socket = Socket::Done;
        }
    }
}

impl Socket {
    /// Returns the socket once its connection is established or has failed.
    fn connected(&self) -> Option<&TcpStream> {
        match self {
            Self::Ready(socket) | Self::Own(socket, _, true) => Some(socket),
            Self::Own(_, _, false) | Self::Pending(_) | Self::Done => None,
        }
    }
}

/// Verifies received bytes of a connection: responses, or an echo.
pub(super) struct Answers {
    stream: u32,
    seed: u64,
    /// `None` before the first byte.
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

    /// Verifies bytes just read; calls `answered` with the time of each complete response.
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
        taken.map_err(|wrong| format!("the responses' byte {}: {}", wrong.offset, wrong.what))?;
        match decoder.preface() {
            Some(preface) if (preface.stream, preface.seed) != (stream, seed) => Err(format!(
                "the responses belong to stream {} with seed {}",
                preface.stream, preface.seed
            )),
            _ => Ok(()),
        }
    }

    /// Returns the number of complete responses.
    pub(super) fn messages(&self) -> u64 {
        self.decoder
            .as_ref()
            .map_or(0, |decoder| decoder.messages())
    }

    /// Returns where and why the responses are incomplete; `None` if they are complete or absent.
    pub(super) fn missing(&self) -> Option<String> {
        self.decoder.as_ref()?.missing()
    }
}
