use std::io;
use std::net::SocketAddr;

use crate::traffic::poller::SystemError;

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
