//! The receiver.

mod connection;
mod datagrams;
mod report;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{Backlog, listen};
use serde::{Deserialize, Serialize};

use crate::traffic::Quantiles;
use crate::traffic::latency::{histogram, now_ns};
use crate::traffic::poller::{Poller, STOP_CHECK_NS, SystemError};
use crate::traffic::wire::MAX_SIZE;
use connection::{Connection, Shared};
use datagrams::Datagrams;

pub use report::{Fault, FaultKind, ReceiveReport, Received, StreamReceived};

const LISTENER: usize = usize::MAX - 1;
const DATAGRAMS: usize = usize::MAX - 2;
const READ_LEN: usize = 256 << 10;

/// Receives and verifies streams, on the thread that calls [`Receiver::run`].
pub struct Receiver {
    config: ReceiveConfig,
    listener: TcpListener,
    address: SocketAddr,
    poller: Poller,
    connections: Vec<Connection>,
    datagrams: Option<Datagrams>,
    /// When a connection that waits to be read may be, the earliest on top.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    closed: usize,
    shared: Shared,
    progress: Arc<AtomicU64>,
}

impl Receiver {
    /// Listens, in the network namespace of the calling thread, so that senders may connect from
    /// now on.
    ///
    /// # Errors
    /// When the address cannot be listened on, or `streams` is 0.
    pub fn bind(config: ReceiveConfig) -> Result<Self, ReceiveError> {
        if config.streams == Some(0) {
            return Err(ReceiveError::NoStreams);
        }
        let failed = |source| ReceiveError::Listen {
            address: config.listen,
            source,
        };
        let listener = TcpListener::bind(config.listen).map_err(failed)?;
        // Many streams connect at once: the standard library's queue of 128 is too short.
        listen(&listener, Backlog::MAXALLOWABLE).map_err(|error| failed(error.into()))?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let poller = Poller::new()?;
        poller.add(&listener, LISTENER, EpollFlags::EPOLLIN)?;
        let datagrams = config.datagrams.then(|| Datagrams::bind(address));
        let datagrams = datagrams.transpose().map_err(failed)?;
        if let Some(datagrams) = &datagrams {
            poller.add(&datagrams.socket, DATAGRAMS, EpollFlags::EPOLLIN)?;
        }
        let shared = Shared {
            buffer: vec![0; READ_LEN],
            latency_ns: histogram(),
            keep_records: config.records,
            manner: Manner::default(),
        };
        Ok(Self {
            config,
            listener,
            address,
            poller,
            connections: Vec::new(),
            datagrams,
            due: BinaryHeap::new(),
            closed: 0,
            shared,
            progress: Arc::default(),
        })
    }

    /// Reads, and answers, in this manner.
    ///
    /// # Errors
    /// [`ReceiveError::Manner`] if it can never read or answer.
    pub fn with_manner(mut self, manner: Manner) -> Result<Self, ReceiveError> {
        let wrong = match (manner.reading, manner.answering) {
            (Reading::Rate(0), _) => "reading 0 bytes a second: give at least 1",
            (_, Answering::Every { messages: 0, .. }) => {
                "an answer to each 0 messages: give at least 1"
            }
            (
                _,
                Answering::Every {
                    size: Some(size), ..
                },
            ) if !(1..=MAX_SIZE).contains(&size) => "size of an answer: give 1 to 1048576 B",
            _ => "",
        };
        if !wrong.is_empty() {
            return Err(ReceiveError::Manner(wrong));
        }
        self.shared.manner = manner;
        Ok(self)
    }

    /// The address listened on, with the port that the kernel chose for port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Number of messages verified so far, for another thread to watch.
    pub fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.progress)
    }

    /// Receives until as many connections as configured have closed, or `stop` is set (looked at
    /// at least every 100 ms), and reports what has come by then.
    ///
    /// # Errors
    /// When the host refuses to accept a connection or to wait. A wrong or broken connection does
    /// not end the others; its fault is in the report.
    pub fn run(mut self, stop: &AtomicBool) -> Result<Received, ReceiveError> {
        let mut events = Vec::new();
        let streams = self.config.streams;
        let is_done = |closed| streams.is_some_and(|all| closed >= all);
        let mut check_ns = now_ns() + STOP_CHECK_NS;
        while !stop.load(Ordering::Relaxed) && !is_done(self.closed) {
            let due = self.due.peek().map_or(check_ns, |Reverse((due, _))| *due);
            events.extend(self.poller.wait_until(due.min(check_ns))?);
            if events.is_empty() {
                check_ns = now_ns() + STOP_CHECK_NS;
            }
            for (index, flags) in events.drain(..) {
                match index {
                    LISTENER => self.accept()?,
                    DATAGRAMS => self.read_datagrams(),
                    _ => self.work(index, Some(flags))?,
                }
            }
            while let Some(&Reverse((due, index))) = self.due.peek() {
                if due > now_ns() {
                    break;
                }
                self.due.pop();
                self.work(index, None)?;
            }
        }
        Ok(self.finish())
    }

    fn accept(&mut self) -> Result<(), ReceiveError> {
        let number = self.connections.len() + 1;
        let failed = |source| ReceiveError::Accept { number, source };
        let (socket, peer) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {
                    return Ok(());
                }
                _ => return Err(failed(error)),
            },
        };
        socket.set_nonblocking(true).map_err(failed)?;
        // Answers leave at once, as messages do.
        socket.set_nodelay(true).map_err(failed)?;
        let index = self.connections.len();
        let connection = Connection::new(socket, peer, self.shared.manner.answering);
        if let Some(socket) = connection.socket() {
            self.poller.add(socket, index, connection.watched)?;
        }
        self.connections.push(connection);
        Ok(())
    }

    /// Deals with a connection: with these events, or because it is due.
    fn work(&mut self, index: usize, events: Option<EpollFlags>) -> Result<(), ReceiveError> {
        let connection = &mut self.connections[index];
        if connection.socket().is_none() {
            return Ok(());
        }
        let before = connection.messages();
        match events {
            Some(events) => {
                let due = connection.changed(events, &mut self.shared);
                self.due.extend(due.map(|due| Reverse((due, index))));
            }
            None => connection.due(&mut self.shared),
        }
        let new = connection.messages() - before;
        self.progress.fetch_add(new, Ordering::Relaxed);
        let interest = connection.interest();
        match connection.socket() {
            None => self.closed += 1,
            Some(_) if interest == connection.watched => {}
            Some(socket) => {
                self.poller.change(socket, index, interest)?;
                connection.watched = interest;
            }
        }
        Ok(())
    }

    fn read_datagrams(&mut self) {
        if let Some(datagrams) = &mut self.datagrams {
            let read = datagrams.read(&mut self.shared);
            self.closed += read.ended;
            self.progress.fetch_add(read.messages, Ordering::Relaxed);
        }
    }

    fn finish(self) -> Received {
        let connections = self.connections.into_iter().map(Connection::into_parts);
        let datagrams = self.datagrams.into_iter().flat_map(Datagrams::into_parts);
        let mut parts: Vec<_> = connections.chain(datagrams).collect();
        parts.sort_by_key(|(stream, _)| stream.stream);
        let (streams, records): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let records = records.concat();
        let latency_us = match self.config.records {
            true => Quantiles::exact(records.iter().map(|record| record.latency_us).collect()),
            false => Quantiles::of_histogram(&self.shared.latency_ns),
        };
        Received {
            report: ReceiveReport::new(streams, latency_us),
            records,
        }
    }
}

/// Where and what to receive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveConfig {
    /// Address to listen on; port 0 lets the kernel choose one.
    pub listen: SocketAddr,
    /// Finish when this many connections, at least 1, have closed, wrong ones included; `None`
    /// goes on until stopped.
    #[serde(default)]
    pub streams: Option<usize>,
    /// Receive UDP datagrams at the same port as well.
    #[serde(default)]
    pub datagrams: bool,
    /// Keep a record of every message (40 bytes each). The report's quantiles are then exact,
    /// otherwise good to three significant digits.
    #[serde(default)]
    pub records: bool,
}

/// What the receiving application does with what comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Manner {
    /// When it reads.
    pub reading: Reading,
    /// What it sends back.
    pub answering: Answering,
}

/// When the receiver reads what has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reading {
    /// At once.
    #[default]
    AtOnce,
    /// All that there is, so long after some of it could first be read.
    Late(Duration),
    /// At most so many bytes a second of each connection, at least 1.
    Rate(u64),
}

/// What the receiver sends back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Answering {
    /// What the sender asks for, which mostly is nothing.
    #[default]
    AsAsked,
    /// The very bytes that come, whatever the sender asks for.
    Echo,
    /// A message to each so many, at least 1, unless the sender asks for something.
    Every {
        /// How many.
        messages: u32,
        /// Bytes of an answer, 1 B to 1 MiB; `None` for as many as the message answered has.
        size: Option<u32>,
    },
}

/// Why receiving could not start or go on. What is wrong with one connection is in the report.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// `streams` is 0.
    #[error("0 streams to wait for: give at least 1, or none to receive until stopped")]
    NoStreams,
    /// Nothing would ever be read, or answered.
    #[error("{0}")]
    Manner(&'static str),
    /// The address cannot be listened on.
    #[error("listening on {address}: {source}; is another process listening there?")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A connection could not be accepted.
    #[error("accepting connection {number}: {source}; `ulimit -n` must exceed the connections")]
    Accept {
        /// The connection's number, from 1.
        number: usize,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No epoll could be had.
    #[error("{call}: {source}")]
    System {
        /// The system call that failed.
        call: &'static str,
        /// The kernel's answer.
        source: nix::Error,
    },
}

impl ReceiveError {
    /// Whether what was asked for has to change, rather than the machine that it was asked of.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::NoStreams | Self::Manner(_))
    }
}

impl From<SystemError> for ReceiveError {
    fn from(SystemError { call, source }: SystemError) -> Self {
        Self::System { call, source }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn answers_do_not_wait_for_those_before_them_to_be_acknowledged() {
        let config = ReceiveConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            streams: None,
            datagrams: false,
            records: false,
        };
        let mut receiver = Receiver::bind(config).unwrap();
        let _sender = TcpStream::connect(receiver.local_addr()).unwrap();
        while receiver.connections.is_empty() {
            receiver.accept().unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        let socket = receiver.connections[0].socket().unwrap();
        assert!(socket.nodelay().unwrap());
    }
}
