//! The barrier: connections are made in parallel, and no byte is sent until all are established.

use std::ffi::OsString;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};

use super::poller::Poller;
use super::{SendConfig, SendError};
use crate::clock::{now_ns, ns};

/// How long a wait may last before the stop flag is looked at again.
pub(super) const STOP_CHECK_NS: u64 = 100_000_000;

/// Establishes all connections and returns them in the order of the streams, each known to
/// `poller` under its stream's number.
pub(super) fn connect_all(
    config: &SendConfig,
    poller: &mut Poller,
    stop: &AtomicBool,
) -> Result<Vec<TcpStream>, SendError> {
    let deadline = now_ns().saturating_add(ns(config.connect_timeout));
    let streams = config.streams;
    let failed = |connected, source| SendError::Connect {
        to: config.to,
        connected,
        streams,
        source,
    };
    let mut sockets = Vec::with_capacity(streams);
    for index in 0..streams {
        let socket = start(config)?.map_err(|source| {
            let connected = sockets
                .iter()
                .filter(|s: &&TcpStream| s.peer_addr().is_ok());
            failed(connected.count(), source)
        })?;
        poller.add(&socket, index)?;
        sockets.push(socket);
    }
    let mut established = vec![false; streams];
    let mut connected = 0;
    while connected < streams {
        let now = now_ns();
        if stop.load(Ordering::Relaxed) {
            return Err(SendError::Stopped { connected, streams });
        }
        if now >= deadline {
            return Err(SendError::ConnectTimeout {
                to: config.to,
                connected,
                streams,
                timeout: config.connect_timeout,
            });
        }
        for index in poller.wait_until(deadline.min(now + STOP_CHECK_NS))? {
            if let Some(source) = sockets[index].take_error().unwrap_or_else(Some) {
                return Err(failed(connected, source));
            }
            connected += usize::from(!established[index]);
            established[index] = true;
        }
    }
    Ok(sockets)
}

/// A socket whose connection is under way. The inner error is the connection's.
fn start(config: &SendConfig) -> Result<io::Result<TcpStream>, SendError> {
    let family = match config.to.is_ipv4() {
        true => AddressFamily::Inet,
        false => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket =
        socket(family, SockType::Stream, flags, None).map_err(SendError::system("socket"))?;
    setsockopt(&socket, sockopt::TcpNoDelay, &true).map_err(SendError::system("TCP_NODELAY"))?;
    if let Some(name) = &config.congestion {
        set_congestion(&socket, name)?;
    }
    let address = SockaddrStorage::from(config.to);
    Ok(match connect(socket.as_fd().as_raw_fd(), &address) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    })
}

fn set_congestion(socket: &OwnedFd, name: &str) -> Result<(), SendError> {
    setsockopt(socket, sockopt::TcpCongestion, &OsString::from(name)).map_err(|source| {
        SendError::Congestion {
            name: name.to_owned(),
            source,
        }
    })
}
