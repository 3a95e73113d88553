use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};
use std::{io, mem};

use nix::errno::Errno;
use nix::sys::socket::sockopt::Linger;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, connect, listen, setsockopt,
    socket,
};
use pillion_bpf::host::socket_option;

use crate::peer::PATIENCE;

/// Makes a TCP socket that is not yet connected, and never waits.
pub(crate) fn new(address: IpAddr) -> OwnedFd {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    socket(family, SockType::Stream, flags, None).expect("a socket")
}

/// Begins to connect a socket.
pub(crate) fn begin(socket: &impl AsRawFd, peer: SocketAddr) {
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(peer)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(error) => panic!("connect to {peer}: {error}"),
    }
}

/// Ends a socket's connection at once, so that the socket can be used for another.
///
/// # Panics
/// If the kernel refuses it.
pub fn disconnect(socket: &TcpStream) {
    // SAFETY: plain integers, for which all zeroes is a value: AF_UNSPEC.
    let nowhere: libc::sockaddr = unsafe { mem::zeroed() };
    let length = size_of_val(&nowhere) as libc::socklen_t;
    // SAFETY: the address lives across the call and has the length stated.
    let result = unsafe { libc::connect(socket.as_raw_fd(), &raw const nowhere, length) };
    assert_eq!(result, 0, "disconnect: {}", io::Error::last_os_error());
}

/// Has a socket's connection end at once when it is closed, with nothing left of it in the kernel.
pub(crate) fn abort_when_closed(socket: &TcpStream) {
    // A test may have closed it already.
    let _ = setsockopt(
        socket,
        Linger,
        &libc::linger {
            l_onoff: 1,
            l_linger: 0,
        },
    );
}

/// Makes a socket that listens, one connection at a time.
pub(crate) fn listener(address: SocketAddr) -> TcpListener {
    let socket = new(address.ip());
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address)).expect("bind");
    listen(&socket, Backlog::new(1).expect("a backlog of one")).expect("listen");
    socket.into()
}

/// Chooses the initial sequence number of a socket that is not yet connected.
pub(crate) fn set_isn(socket: &impl AsFd, isn: u32) {
    const OFF_WITHOUT_PROBE: libc::c_int = -1;
    const SEND_QUEUE: libc::c_int = 2;
    for (option, value) in [
        (libc::TCP_REPAIR, 1),
        (libc::TCP_REPAIR_QUEUE, SEND_QUEUE),
        (libc::TCP_QUEUE_SEQ, isn.cast_signed()),
        (libc::TCP_REPAIR, OFF_WITHOUT_PROBE),
    ] {
        set_option(socket, libc::IPPROTO_TCP, option, &i32::to_ne_bytes(value));
    }
}

/// Sets a socket option.
///
/// # Panics
/// When the kernel refuses it.
pub fn set_option(socket: impl AsFd, level: i32, option: i32, value: &[u8]) {
    socket_option::set(socket, (level, option), value)
        .unwrap_or_else(|error| panic!("socket option {level}/{option}={value:?}: {error}"));
}

/// Reads a socket option that is an integer.
pub(crate) fn option(socket: impl AsFd, level: i32, option: i32) -> i32 {
    let value = socket_option::get(socket, (level, option));
    let value = value.unwrap_or_else(|error| panic!("socket option {level}/{option}: {error}"));
    i32::from_ne_bytes(value)
}

/// Bytes written that are not yet acknowledged.
pub(crate) fn unacknowledged(socket: &TcpStream) -> u32 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ writes one integer, which lives across the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(result, 0, "TIOCOUTQ: {}", io::Error::last_os_error());
    bytes.cast_unsigned()
}

/// Bytes written that TCP has not sent yet.
pub(crate) fn unsent(socket: &TcpStream) -> u32 {
    /// `SIOCOUTQNSD` of the kernel's `linux/sockios.h`: bytes not sent.
    const SIOCOUTQNSD: libc::Ioctl = 0x894b;
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQNSD writes one integer, which lives across the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCOUTQNSD, &raw mut bytes) };
    assert_eq!(result, 0, "SIOCOUTQNSD: {}", io::Error::last_os_error());
    bytes.cast_unsigned()
}

/// Segments that the peer acknowledged selectively.
pub(crate) fn sacked(socket: &TcpStream) -> u32 {
    tcp_info(socket).tcpi_sacked
}

/// What the kernel says of a connection (`TCP_INFO`).
///
/// # Panics
/// When the kernel says nothing.
#[must_use]
pub fn tcp_info(socket: &TcpStream) -> libc::tcp_info {
    const BYTES: usize = size_of::<libc::tcp_info>();
    let info = socket_option::get::<BYTES>(socket, (libc::IPPROTO_TCP, libc::TCP_INFO));
    // SAFETY: plain integers, for which any bytes are a value.
    unsafe { mem::transmute(info.expect("TCP_INFO")) }
}

/// Waits until something comes true; false when it does not in good time.
pub(crate) fn until(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}
