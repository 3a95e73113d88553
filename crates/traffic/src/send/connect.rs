//! The barrier: connections are made in parallel, and no byte is sent until all are established.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};

use super::{SendError, switch};
use crate::clock::{now_ns, ns};
use crate::plan::{SocketOptions, Traffic};
use crate::poller::{Poller, system};

/// How long a wait may last before the stop flag is looked at again.
pub(super) const STOP_CHECK_NS: u64 = 100_000_000;

/// Every change of a socket, reported once.
pub(super) fn all_changes() -> EpollFlags {
    EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET
}

/// Establishes all connections and returns them in the order of the streams.
pub(super) fn connect_all(
    traffic: &Traffic,
    stop: &AtomicBool,
) -> Result<Vec<TcpStream>, SendError> {
    let to = traffic.to;
    let deadline = now_ns().saturating_add(ns(traffic.connect_timeout));
    let streams = traffic.streams();
    let failed = |connected, source| SendError::Connect {
        to,
        connected,
        streams,
        source,
    };
    let mut poller = Poller::new()?;
    let mut sockets: Vec<TcpStream> = Vec::with_capacity(streams);
    for group in &traffic.groups {
        for _ in 0..group.streams {
            let socket = start(to, &group.socket)?.map_err(|source| {
                let connected = sockets.iter().filter(|s| s.peer_addr().is_ok());
                failed(connected.count(), source)
            })?;
            poller.add(&socket, sockets.len(), all_changes())?;
            sockets.push(socket);
        }
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
                to,
                connected,
                streams,
                timeout: traffic.connect_timeout,
            });
        }
        for (index, _) in poller.wait_until(deadline.min(now + STOP_CHECK_NS))? {
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
fn start(to: SocketAddr, options: &SocketOptions) -> Result<io::Result<TcpStream>, SendError> {
    let family = match to.is_ipv4() {
        true => AddressFamily::Inet,
        false => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, None).map_err(system("socket"))?;
    let no_delay = !options.nagle;
    setsockopt(&socket, sockopt::TcpNoDelay, &no_delay).map_err(system("TCP_NODELAY"))?;
    if options.linear_timeouts {
        set_int(&socket, libc::TCP_THIN_LINEAR_TIMEOUTS, 1)
            .map_err(system("TCP_THIN_LINEAR_TIMEOUTS"))?;
    }
    if let Some(name) = &options.congestion {
        set_congestion(&socket, name)?;
    }
    switch::set(&socket, options)?;
    let address = SockaddrStorage::from(to);
    Ok(match connect(socket.as_fd().as_raw_fd(), &address) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    })
}

/// Sets an option of TCP that takes an int.
pub(super) fn set_int(
    socket: &OwnedFd,
    option: libc::c_int,
    value: libc::c_int,
) -> Result<(), Errno> {
    // SAFETY: the kernel reads an int from where `value` lies.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    Errno::result(result).map(drop)
}

fn set_congestion(socket: &OwnedFd, name: &str) -> Result<(), SendError> {
    setsockopt(socket, sockopt::TcpCongestion, &OsString::from(name)).map_err(|source| {
        SendError::Congestion {
            name: name.to_owned(),
            source,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use nix::sys::socket::getsockopt;

    use super::*;

    fn get_int(socket: &impl AsRawFd, option: libc::c_int) -> libc::c_int {
        let mut value: libc::c_int = 0;
        let mut len = size_of_val(&value) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `value`, and their number to `len`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                option,
                (&raw mut value).cast(),
                &raw mut len,
            )
        };
        assert_eq!(result, 0);
        value
    }

    #[test]
    fn a_socket_has_the_options_that_were_asked_for_before_it_connects() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        for on in [false, true] {
            let options = SocketOptions {
                nagle: on,
                linear_timeouts: on,
                congestion: Some("reno".to_owned()),
                ..SocketOptions::default()
            };
            let socket = start(to, &options).unwrap().unwrap();
            assert_eq!(getsockopt(&socket, sockopt::TcpNoDelay), Ok(!on));
            let linear = get_int(&socket, libc::TCP_THIN_LINEAR_TIMEOUTS);
            assert_eq!(linear, on.into());
            let congestion = getsockopt(&socket, sockopt::TcpCongestion).unwrap();
            assert_eq!(congestion, "reno");
        }
    }
}
