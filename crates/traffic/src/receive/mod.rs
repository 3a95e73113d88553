//! The receiver.

mod config;
mod connection;
mod error;
mod record;
mod report;
mod verifier;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{Backlog, listen};

pub use config::ReceiveConfig;
pub use error::ReceiveError;
pub use record::{Record, write_csv};
pub use report::{Fault, FaultKind, ReceiveReport, Received, StreamReceived};

use crate::Quantiles;
use crate::quantiles::histogram;
use connection::{Connection, Shared};

const LISTENER: u64 = u64::MAX;
const STOP_CHECK_MS: u8 = 100;
const READ_LEN: usize = 256 << 10;

/// Receives and verifies streams, on the thread that calls [`Receiver::run`].
pub struct Receiver {
    config: ReceiveConfig,
    listener: TcpListener,
    address: SocketAddr,
    epoll: Epoll,
    connections: Vec<Connection>,
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
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(ReceiveError::system("epoll_create1"))?;
        epoll
            .add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))
            .map_err(ReceiveError::system("epoll_ctl"))?;
        let shared = Shared {
            buffer: vec![0; READ_LEN],
            latency_ns: histogram(),
            keep_records: config.records,
        };
        Ok(Self {
            config,
            listener,
            address,
            epoll,
            connections: Vec::new(),
            shared,
            progress: Arc::default(),
        })
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
        let mut events = vec![EpollEvent::empty(); 256];
        let mut closed = 0;
        while !stop.load(Ordering::Relaxed) && self.config.streams.is_none_or(|all| closed < all) {
            let timeout = EpollTimeout::from(STOP_CHECK_MS);
            let ready = match self.epoll.wait(&mut events, timeout) {
                Err(Errno::EINTR) => 0,
                result => result.map_err(ReceiveError::system("epoll_wait"))?,
            };
            for event in &events[..ready] {
                match event.data() {
                    LISTENER => self.accept()?,
                    index => closed += usize::from(self.read(index as usize)),
                }
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
        let index = self.connections.len() as u64;
        self.epoll
            .add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, index))
            .map_err(ReceiveError::system("epoll_ctl"))?;
        self.connections.push(Connection::new(socket, peer));
        Ok(())
    }

    /// Reads from a connection; true when that closed it.
    fn read(&mut self, index: usize) -> bool {
        let connection = &mut self.connections[index];
        let before = connection.messages();
        connection.read(&mut self.shared);
        let new = connection.messages() - before;
        self.progress.fetch_add(new.into(), Ordering::Relaxed);
        !connection.is_open()
    }

    fn finish(self) -> Received {
        let mut parts: Vec<_> = self
            .connections
            .into_iter()
            .map(Connection::into_parts)
            .collect();
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
