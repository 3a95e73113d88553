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

pub use report::{Fault, FaultKind, ReceiveReport, ReceiveResult, StreamReceiveReport};

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
    /// Connections whose reads are delayed, by due time, earliest on top.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    closed: usize,
    shared: Shared,
    progress: Arc<AtomicU64>,
}

impl Receiver {
    /// Listens in the network namespace of the calling thread, so that senders can connect.
    ///
    /// # Errors
    /// If the address cannot be listened on, or `streams` is 0.
    pub fn bind(config: ReceiveConfig) -> Result<Self, ReceiveError> {
        if config.streams == Some(0) {
            return Err(ReceiveError::NoStreams);
        }
        let failed = |source| ReceiveError::Listen {
            address: config.listen,
            source,
        };
        let listener = TcpListener::bind(config.listen).map_err(failed)?;
        // Many streams connect together, and the standard library's backlog of 128 is too short.
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
            behaviour: ReceiveBehaviour::default(),
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

    /// Sets how to read and respond.
    ///
    /// # Errors
    /// [`ReceiveError::ReceiveBehaviour`] if nothing could ever be read or sent.
    pub fn with_behaviour(mut self, behaviour: ReceiveBehaviour) -> Result<Self, ReceiveError> {
        let wrong = match (behaviour.read_mode, behaviour.response_mode) {
            (ReadMode::Rate(0), _) => "invalid read rate 0: expected at least 1 byte per second",
            (_, ResponseMode::Every { messages: 0, .. }) => {
                "invalid number of messages per response 0: expected at least 1"
            }
            (
                _,
                ResponseMode::Every {
                    size: Some(size), ..
                },
            ) if !(1..=MAX_SIZE).contains(&size) => {
                "invalid response size: expected 1 to 1048576 B"
            }
            _ => "",
        };
        if !wrong.is_empty() {
            return Err(ReceiveError::ReceiveBehaviour(wrong));
        }
        self.shared.behaviour = behaviour;
        Ok(self)
    }

    /// Returns the listening address, with the port that the kernel chose for port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counter of verified messages, for another thread.
    pub fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.progress)
    }

    /// Receives until the configured number of connections has closed, or `stop` is set (checked at
    /// least every 100 ms), and reports all received data.
    ///
    /// # Errors
    /// If the host cannot accept a connection or wait for events. A faulty connection does not stop
    /// the others; its fault is in the report.
    pub fn run(mut self, stop: &AtomicBool) -> Result<ReceiveResult, ReceiveError> {
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
                    _ => self.handle_connection(index, Some(flags))?,
                }
            }
            while let Some(&Reverse((due, index))) = self.due.peek() {
                if due > now_ns() {
                    break;
                }
                self.due.pop();
                self.handle_connection(index, None)?;
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
        // Responses leave immediately, like messages.
        socket.set_nodelay(true).map_err(failed)?;
        let index = self.connections.len();
        let connection = Connection::new(socket, peer, self.shared.behaviour.response_mode);
        if let Some(socket) = connection.socket() {
            self.poller.add(socket, index, connection.registered)?;
        }
        self.connections.push(connection);
        Ok(())
    }

    /// Handles a connection: with these events, or because its read is due.
    fn handle_connection(
        &mut self,
        index: usize,
        events: Option<EpollFlags>,
    ) -> Result<(), ReceiveError> {
        let connection = &mut self.connections[index];
        if connection.socket().is_none() {
            return Ok(());
        }
        let before = connection.messages();
        match events {
            Some(events) => {
                let due = connection.handle_events(events, &mut self.shared);
                self.due.extend(due.map(|due| Reverse((due, index))));
            }
            None => connection.read_delayed(&mut self.shared),
        }
        let new = connection.messages() - before;
        self.progress.fetch_add(new, Ordering::Relaxed);
        let interest = connection.interest();
        match connection.socket() {
            None => self.closed += 1,
            Some(_) if interest == connection.registered => {}
            Some(socket) => {
                self.poller.change(socket, index, interest)?;
                connection.registered = interest;
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

    fn finish(self) -> ReceiveResult {
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
        ReceiveResult {
            report: ReceiveReport::new(streams, latency_us),
            records,
        }
    }
}

/// Configuration of a receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveConfig {
    /// Address to listen on; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Finish when this many connections, at least 1, have closed, including faulty ones; `None`
    /// runs until stopped.
    #[serde(default)]
    pub streams: Option<usize>,
    /// Also receive UDP datagrams at the same port.
    #[serde(default)]
    pub datagrams: bool,
    /// Store a record of every message (40 bytes each). The report's quantiles are then exact,
    /// otherwise they have three significant digits.
    #[serde(default)]
    pub records: bool,
}

/// Behaviour of the receiving application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveBehaviour {
    /// When it reads.
    pub read_mode: ReadMode,
    /// Its responses.
    pub response_mode: ResponseMode,
}

/// When the receiver reads available data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// Immediately.
    #[default]
    Immediate,
    /// All available data, after a delay.
    Delayed(Duration),
    /// At most this many bytes per second and connection, at least 1.
    Rate(u64),
}

/// Responses of the receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResponseMode {
    /// The responses that the sender requests, by default none.
    #[default]
    AsRequested,
    /// All received bytes, regardless of the sender's request.
    Echo,
    /// One response per `messages`, unless the sender requests responses.
    Every {
        /// Messages per response, at least 1.
        messages: u32,
        /// Bytes of a response, 1 B to 1 MiB; `None` for the size of the message.
        size: Option<u32>,
    },
}

/// Why receiving could not start or continue. Faults of single connections are in the report.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// `streams` is 0.
    #[error("invalid number of streams 0: expected at least 1, or none to receive until stopped")]
    NoStreams,
    /// Nothing would ever be read or sent.
    #[error("{0}")]
    ReceiveBehaviour(&'static str),
    /// The address cannot be listened on.
    #[error("listening on {address}: {source}; is another process listening there?")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// A connection could not be accepted.
    #[error("accepting connection {number}: {source}; `ulimit -n` must exceed the connections")]
    Accept {
        /// The connection's number, from 1.
        number: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// Epoll is unavailable.
    #[error("{call}: {source}")]
    System {
        /// The system call that failed.
        call: &'static str,
        /// The kernel's error.
        source: nix::Error,
    },
}

impl ReceiveError {
    /// Returns true if the request has to change, rather than the machine.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::NoStreams | Self::ReceiveBehaviour(_))
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
    fn accepted_connection_has_nagle_disabled() {
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
