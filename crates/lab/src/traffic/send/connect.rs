//! The barrier: connections are made in parallel, and no byte is sent until all are established.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_int;
use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use pillion_bpf::host::pillion::{BUNDLE, MAX_PACKETS};
use pillion_bpf::host::socket_option;

use super::{SendError, datagrams};
use crate::traffic::latency::{now_ns, ns};
use crate::traffic::plan::{Group, Kind, SocketOptions, Traffic};
use crate::traffic::poller::{Poller, STOP_CHECK_NS, SystemError, system};

/// Returns the events for every change of a socket, edge-triggered.
pub(super) fn all_changes() -> EpollFlags {
    EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET
}

/// A stream's connection, or the error.
pub(super) type Attempt = Result<Connection, String>;

/// The connection of a stream.
pub(super) enum Connection {
    /// Established.
    Established(TcpStream),
    /// To be made by the stream: with others of its group, or with its first message.
    Pending(PendingConnection, Option<GroupConnect>),
    /// A UDP socket, for streams of datagrams.
    Datagrams(UdpSocket),
}

impl Connection {
    pub(super) fn group_connect(&self) -> Option<GroupConnect> {
        match self {
            Self::Pending(_, group_connect) => *group_connect,
            Self::Established(_) | Self::Datagrams(_) => None,
        }
    }
}

/// When the connections of a group are made, in nanoseconds since the barrier opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupConnect {
    pub(super) connect_at_ns: u64,
    /// Time until which each stream waits for the others.
    pub(super) start_deadline_ns: u64,
}

/// A connection to be made.
#[derive(Clone)]
pub(super) struct PendingConnection {
    to: SocketAddr,
    /// Source port, 0 for any.
    port: u16,
    options: SocketOptions,
    /// Whether to connect again if no answer comes.
    pub(super) reconnect: bool,
}

impl PendingConnection {
    /// Starts to connect, and registers the socket with the poller under this number.
    pub(super) fn open(&self, poller: &Poller, number: usize) -> Result<TcpStream, String> {
        let started = start(self.to, self.port, &self.options);
        let socket = started.map_err(|error| error.to_string())?;
        let socket = socket.map_err(|error| error.to_string())?;
        let added = poller.add(&socket, number, all_changes());
        added.map_err(|SystemError { call, source }| format!("{call}: {source}"))?;
        Ok(socket)
    }
}

/// Establishes all connections and returns them in the order of the streams.
pub(super) fn connect_all(traffic: &Traffic, stop: &AtomicBool) -> Result<Vec<Attempt>, SendError> {
    let to = traffic.to;
    let deadline = now_ns().saturating_add(ns(traffic.connect_timeout));
    let first = |group: &&Group| group.connects_before_barrier();
    let first = traffic.groups.iter().filter(first);
    let streams = first.map(|group| group.streams).sum();
    let failed = |connected, source| SendError::Connect {
        to,
        connected,
        streams,
        source,
    };
    let mut poller = Poller::new()?;
    let mut attempts: Vec<Attempt> = Vec::with_capacity(streams);
    let groups = traffic.groups.iter();
    let groups = groups.flat_map(|group| std::iter::repeat_n(group, group.streams));
    let groups: Vec<&Group> = groups.collect();
    let port = |index: usize| traffic.source_port.map_or(0, |first| first + index as u16);
    for group in &groups {
        let port = port(attempts.len());
        if let Kind::Datagrams { .. } = group.kind {
            attempts.push(Ok(Connection::Datagrams(datagrams::open(to, port)?)));
            continue;
        }
        if !group.connects_before_barrier() {
            let pending = PendingConnection {
                to,
                port,
                options: group.socket.clone(),
                reconnect: group.reconnect,
            };
            let group_connect = group.connects_at_start.then(|| GroupConnect {
                connect_at_ns: ns(group.start),
                start_deadline_ns: ns(group.start.saturating_add(traffic.connect_timeout)),
            });
            attempts.push(Ok(Connection::Pending(pending, group_connect)));
            continue;
        }
        attempts.push(match start(to, port, &group.socket)? {
            Ok(socket) => {
                poller.add(&socket, attempts.len(), all_changes())?;
                Ok(Connection::Established(socket))
            }
            Err(source) if traffic.partly => Err(source.to_string()),
            Err(source) => {
                let connected = attempts.iter().filter(
                    |attempt| matches!(attempt, Ok(Connection::Established(it)) if it.peer_addr().is_ok()),
                );
                return Err(failed(connected.count(), source));
            }
        });
    }
    let mut established = vec![false; attempts.len()];
    let mut connected = 0;
    let mut refused = attempts.iter().filter(|it| it.is_err()).count();
    while connected + refused < streams {
        let now = now_ns();
        if stop.load(Ordering::Relaxed) {
            return Err(SendError::Stopped { connected, streams });
        }
        if now >= deadline {
            if traffic.partly {
                break;
            }
            return Err(SendError::ConnectTimeout {
                to,
                connected,
                streams,
                timeout: traffic.connect_timeout,
            });
        }
        let changed = poller.wait_until(deadline.min(now + STOP_CHECK_NS))?;
        let changed: Vec<usize> = changed.map(|(index, _)| index).collect();
        for index in changed {
            let Ok(Connection::Established(socket)) = &attempts[index] else {
                continue;
            };
            match socket.take_error().unwrap_or_else(Some) {
                None => {
                    connected += usize::from(!established[index]);
                    established[index] = true;
                }
                // The stream detects the error later.
                Some(_) if established[index] => {}
                Some(source) if groups[index].reconnect && was_unanswered(&source) => {
                    // The port is free only without the old socket.
                    attempts[index] = Err(source.to_string());
                    if let Ok(socket) = start(to, port(index), &groups[index].socket)? {
                        poller.add(&socket, index, all_changes())?;
                        attempts[index] = Ok(Connection::Established(socket));
                    } else {
                        refused += 1;
                    }
                }
                Some(source) if traffic.partly => {
                    attempts[index] = Err(source.to_string());
                    refused += 1;
                }
                Some(source) => return Err(failed(connected, source)),
            }
        }
    }
    for (attempt, established) in attempts.iter_mut().zip(established) {
        if let (Ok(Connection::Established(_)), false) = (&attempt, established) {
            *attempt = Err(format!("no answer within {:?}", traffic.connect_timeout));
        }
    }
    Ok(attempts)
}

/// Whether a connection failed because all its SYNs remained unanswered.
pub(super) fn was_unanswered(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}

/// Creates a socket and starts to connect. The inner error is the connection's. `port` is the
/// source port, 0 for any.
fn start(
    to: SocketAddr,
    port: u16,
    options: &SocketOptions,
) -> Result<io::Result<TcpStream>, SendError> {
    let (family, any) = match to.is_ipv4() {
        true => (AddressFamily::Inet, IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        false => (AddressFamily::Inet6, IpAddr::from(Ipv6Addr::UNSPECIFIED)),
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, None).map_err(system("socket"))?;
    let no_delay = !options.nagle;
    setsockopt(&socket, sockopt::TcpNoDelay, &no_delay).map_err(system("TCP_NODELAY"))?;
    if options.linear_timeouts {
        let linear = (libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS);
        socket_option::set(&socket, linear, &1).map_err(system("TCP_THIN_LINEAR_TIMEOUTS"))?;
    }
    if let Some(retries) = options.syn_retries {
        let retries = c_int::from(retries);
        socket_option::set(&socket, (libc::IPPROTO_TCP, libc::TCP_SYNCNT), &retries)
            .map_err(system("TCP_SYNCNT"))?;
    }
    if let Some(name) = &options.congestion {
        set_congestion(&socket, name)?;
    }
    set_bundling(&socket, options)?;
    if port != 0 {
        let local = SocketAddr::from((any, port));
        setsockopt(&socket, sockopt::ReuseAddr, &true).map_err(system("SO_REUSEADDR"))?;
        bind(socket.as_fd().as_raw_fd(), &SockaddrStorage::from(local)).map_err(|source| {
            let source = source.into();
            SendError::Bind { local, source }
        })?;
    }
    let address = SockaddrStorage::from(to);
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

// Requests to pillion, by its socket options.

/// Sets pillion's socket options.
fn set_bundling(socket: &OwnedFd, options: &SocketOptions) -> Result<(), SendError> {
    let set = |option, number, value: c_int| {
        let set = socket_option::set(socket, (libc::IPPROTO_TCP, number), &value);
        set.map_err(|source| SendError::Switch { option, source })
    };
    if let Some(on) = options.pillion {
        set("PILLION_BUNDLE", BUNDLE, on.into())?;
    }
    if let Some(limit) = options.max_packets {
        let limit = c_int::try_from(limit).unwrap_or(-1);
        set("PILLION_MAX_PACKETS", MAX_PACKETS, limit)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use nix::sys::socket::getsockopt;

    use super::*;

    fn get_int(socket: impl AsFd, option: libc::c_int) -> libc::c_int {
        libc::c_int::from_ne_bytes(socket_option::get(socket, (libc::IPPROTO_TCP, option)).unwrap())
    }

    #[test]
    fn socket_has_requested_options() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        for on in [false, true] {
            let options = SocketOptions {
                nagle: on,
                linear_timeouts: on,
                congestion: Some("reno".to_owned()),
                syn_retries: Some(2),
                ..SocketOptions::default()
            };
            let socket = start(to, 0, &options).unwrap().unwrap();
            assert_eq!(getsockopt(&socket, sockopt::TcpNoDelay), Ok(!on));
            let linear = get_int(&socket, libc::TCP_THIN_LINEAR_TIMEOUTS);
            assert_eq!(linear, i32::from(on));
            let congestion = getsockopt(&socket, sockopt::TcpCongestion).unwrap();
            assert_eq!(congestion, "reno");
            assert_eq!(get_int(&socket, libc::TCP_SYNCNT), 2);
        }
    }
}
