use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use super::report::StreamSent;
use crate::schedule::Schedule;
use crate::tcp_info::TcpInfo;
use crate::wire::{Message, Preface};

/// A write offers whole messages, and no more once they are this long together.
const WRITE_LEN: usize = 64 << 10;

/// One connection at work.
pub(super) struct Stream {
    pub(super) schedule: Schedule,
    socket: TcpStream,
    preface: Preface,
    /// Send times of the messages that the kernel has not wholly taken. Their bytes follow from
    /// sequence and send time and are made again for each write.
    queue: VecDeque<u64>,
    /// Bytes of the first message in the queue (and of the preface before it) already taken.
    taken: usize,
    last_message_seen: bool,
    half_closed: bool,
    report: StreamSent,
    /// False once the connection has ended, well or not.
    open: bool,
}

impl Stream {
    pub(super) fn new(socket: TcpStream, preface: Preface, schedule: Schedule) -> Self {
        Self {
            schedule,
            socket,
            queue: VecDeque::new(),
            taken: 0,
            last_message_seen: false,
            half_closed: false,
            report: StreamSent::new(preface.stream),
            preface,
            open: true,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// The application hands over the next message at `now_ns`.
    pub(super) fn hand_over(&mut self, now_ns: u64, scratch: &mut Vec<u8>) {
        self.queue.push_back(now_ns);
        // Behind other messages nothing can be written before the socket says so.
        if self.queue.len() == 1 {
            self.write(scratch);
        }
        self.report.blocked_writes += u64::from(!self.queue.is_empty());
    }

    /// No more messages will come: half-closes as soon as the kernel has taken all.
    pub(super) fn finish(&mut self) {
        self.last_message_seen = true;
        self.half_close();
        self.read();
    }

    /// The socket has changed.
    pub(super) fn ready(&mut self, scratch: &mut Vec<u8>) {
        if self.open {
            self.write(scratch);
            self.half_close();
            self.read();
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

    fn write(&mut self, scratch: &mut Vec<u8>) {
        while self.open && !self.queue.is_empty() {
            self.fill(scratch);
            match self.socket.write(&scratch[self.taken..]) {
                Ok(len) => self.account(len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.fail(format!("write: {error}")),
            }
        }
    }

    /// Makes the bytes of the first messages in the queue, those already taken included.
    fn fill(&self, scratch: &mut Vec<u8>) {
        scratch.clear();
        if self.report.messages == 0 {
            scratch.extend_from_slice(&self.preface.to_bytes());
        }
        for (sequence, &sent_ns) in (self.report.messages as u32..).zip(&self.queue) {
            Message { sequence, sent_ns }.append(&self.preface, scratch);
            if scratch.len() >= WRITE_LEN {
                break;
            }
        }
    }

    /// The kernel took `len` more bytes.
    fn account(&mut self, len: usize) {
        self.report.bytes += len as u64;
        self.taken += len;
        while !self.queue.is_empty() && self.taken >= self.first_len() {
            self.taken -= self.first_len();
            self.queue.pop_front();
            self.report.messages += 1;
        }
    }

    fn first_len(&self) -> usize {
        let preface = match self.report.messages {
            0 => Preface::LEN,
            _ => 0,
        };
        preface + self.preface.size as usize
    }

    fn half_close(&mut self) {
        if !self.open || !self.last_message_seen || self.half_closed || !self.queue.is_empty() {
            return;
        }
        match self.socket.shutdown(Shutdown::Write) {
            Ok(()) => self.half_closed = true,
            Err(error) => self.fail(format!("half-close: {error}")),
        }
    }

    /// The receiver sends nothing; what can be read is its close.
    fn read(&mut self) {
        if !self.open {
            return;
        }
        match self.socket.read(&mut [0]) {
            Ok(0) if self.half_closed => self.end(),
            Ok(0) => self.fail("the receiver closed before the end".to_owned()),
            Ok(_) => self.fail("the peer sent data, so it is no pillion receiver".to_owned()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => self.fail(format!("waiting for the receiver's close: {error}")),
        }
    }

    fn fail(&mut self, error: String) {
        self.report.error = Some(error);
        self.end();
    }

    fn end(&mut self) {
        self.open = false;
        self.report.tcp = TcpInfo::read(&self.socket).unwrap_or_default();
    }
}
