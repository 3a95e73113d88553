//! The socket under test: made and asked, opened with data (TCP Fast Open, RFC 7413), taken down and
//! put up again as checkpoints do it (TCP_REPAIR), and held by a write that cannot go on, because a
//! page of what is to be written is missing.

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::sockopt::{Linger, ReuseAddr};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, SockaddrStorage, bind, connect, listen,
    sendto, setsockopt, socket,
};
use pillion_bpf::host::interruption::poll;
use pillion_bpf::host::socket_option;

use crate::netns::ip;
use crate::peer::PATIENCE;
use crate::segment::content;
use crate::wire::accept;
use crate::{Wire, sysctl};

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

impl Wire {
    /// Ends the connection and opens another one with the same socket, to a port of the peer's,
    /// that is to begin with so many bytes. Returns how many the SYN carried: none the first time,
    /// when the peer has not given its cookie yet; the peer takes them in or not. What follows the
    /// SYN-ACK is left to the script.
    pub fn reconnect_with_data(&mut self, port: u16, bytes: u32, taken: bool) -> u32 {
        self.script.note(&format!("fast_open={port}+{bytes}"));
        disconnect(&self.stream);
        self.peer.port = port;
        let address = self.setup.ip.in_socket(self.setup.ip.peer());
        let address = SockaddrStorage::from(SocketAddr::new(address, port));
        let (data, flags) = (
            content(1, 1 + bytes),
            MsgFlags::from_bits_retain(libc::MSG_FASTOPEN),
        );
        let sent = match sendto(self.stream.as_raw_fd(), &data, &address, flags) {
            Err(Errno::EINPROGRESS) => 0,
            other => other.expect("Fast Open") as u32,
        };
        let carried = self.peer.accept_data(taken);
        assert_eq!(carried, content(1, 1 + sent), "the data of the SYN");
        self.written = sent;
        sent
    }

    /// Ends the connection and takes in one that the peer begins from another port, with
    /// data. The last ACK of the handshake is left to the script.
    pub fn reaccept_with_data(&mut self, port: u16, bytes: u32) {
        const TAKEN_WITHOUT_COOKIE_OR_SOCKET_OPTION: &str = "1539";
        self.script.note(&format!("fast_open<{port}+{bytes}"));
        sysctl(
            "net.ipv4.tcp_fastopen",
            TAKEN_WITHOUT_COOKIE_OR_SOCKET_OPTION,
        );
        disconnect(&self.stream);
        self.peer.port = port;
        let data = content(1, 1 + bytes);
        self.stream = accept(&self.setup, &mut self.peer, |peer| peer.begin(&data));
        self.written = 0;
    }
}

/// Queues, as TCP_REPAIR_QUEUE has them.
const RECEIVED: i32 = 1;
const SENT: i32 = 2;
/// The peer's options of the handshake, as `struct tcp_repair_opt` has their codes.
const MSS: u32 = 2;
const SACK_PERMITTED: u32 = 4;
const TIMESTAMPS: u32 = 8;

impl Wire {
    /// Has another socket go on with the connection, of which all is acknowledged. It asks the peer
    /// for its window, by the byte before the next one, and sends nothing until it knows.
    pub fn restore(&mut self) {
        self.script.note("restore");
        let old = &self.stream;
        let [local, peer] = [old.local_addr(), old.peer_addr()].map(|it| it.expect("an end"));
        let mss = self.setup.mss.into();
        let clock = get(old, libc::TCP_TIMESTAMP);
        set(old, libc::TCP_REPAIR, 1);
        let queues = [SENT, RECEIVED].map(|queue| {
            set(old, libc::TCP_REPAIR_QUEUE, queue);
            (queue, get(old, libc::TCP_QUEUE_SEQ))
        });
        // While it is repaired it says nothing of that to its peer. Closing it alone would not do:
        // what another test begins at this moment has it open, too, until it runs.
        disconnect(old);
        let new = new(local.ip());
        self.stream = TcpStream::from(new);
        let new = &self.stream;
        setsockopt(new, ReuseAddr, &true).expect("SO_REUSEADDR");
        set(new, libc::TCP_REPAIR, 1);
        bind(new.as_raw_fd(), &SockaddrStorage::from(local)).expect("the same end");
        for (queue, next) in queues {
            set(new, libc::TCP_REPAIR_QUEUE, queue);
            set(new, libc::TCP_QUEUE_SEQ, next);
        }
        begin(new, peer);
        let mut options = vec![(MSS, mss)];
        options.extend(self.setup.sack.then_some((SACK_PERMITTED, 0)));
        options.extend(self.setup.timestamps.then_some((TIMESTAMPS, 0)));
        let options = options.iter().flat_map(|(code, value)| [*code, *value]);
        let options: Vec<u8> = options.flat_map(u32::to_ne_bytes).collect();
        set_option(new, libc::IPPROTO_TCP, libc::TCP_REPAIR_OPTIONS, &options);
        set(new, libc::TCP_TIMESTAMP, clock);
        set(new, libc::TCP_REPAIR, 0);
        set(new, libc::TCP_NODELAY, self.setup.nodelay.into());
    }
}

fn set(socket: impl AsFd, name: i32, value: i32) {
    set_option(socket, libc::IPPROTO_TCP, name, &value.to_ne_bytes());
}

fn get(socket: impl AsFd, name: i32) -> i32 {
    option(socket, libc::IPPROTO_TCP, name)
}

const PAGE: usize = 4096;

/// `UFFDIO_API` of the kernel's `linux/userfaultfd.h`.
const API: libc::Ioctl = 0xc018_aa3f;
const REGISTER: libc::Ioctl = 0xc020_aa00;
const COPY: libc::Ioctl = 0xc028_aa03;
const VERSION: u64 = 0xaa;
const MISSING: u64 = 1;

impl Wire {
    /// Has the application write so many bytes while it holds the socket, and keeps it there as
    /// long as `meanwhile` takes; what comes for the socket has to wait. False where the kernel
    /// has no userfaultfd.
    pub fn held(&mut self, bytes: u32, meanwhile: impl FnOnce(&mut Self)) -> bool {
        let Some(missing) = MissingPage::new() else {
            return false;
        };
        self.script.note(&format!("held={bytes}"));
        let start = self.written + 1;
        self.written += bytes;
        let content = content(start, start + bytes);
        let socket = self.stream.as_raw_fd();
        let address = missing.address as usize;
        thread::scope(|scope| {
            let length = content.len();
            // SAFETY: the page is mapped until this scope has ended.
            let write = move || unsafe { libc::send(socket, address as *const _, length, 0) };
            let writer = scope.spawn(write);
            missing.await_fault();
            meanwhile(self);
            missing.provide(&content);
            let written = writer.join().expect("the writer ends");
            assert_eq!(written, content.len().cast_signed(), "the write");
        });
        true
    }
}

/// A page of memory without content, with a file descriptor that tells when that is wanted.
struct MissingPage {
    address: *mut libc::c_void,
    faults: File,
}

impl MissingPage {
    fn new() -> Option<Self> {
        // SAFETY: a plain system call; the result is checked.
        let fd =
            unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        if fd < 0 {
            assert_eq!(
                io::Error::last_os_error().raw_os_error(),
                Some(libc::ENOSYS)
            );
            return None;
        }
        // SAFETY: a valid file descriptor, new and nobody else's.
        let faults = unsafe { File::from_raw_fd(fd as i32) };
        // SAFETY: a new mapping at a place of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED, "mmap");
        let page = Self { address, faults };
        page.control(API, &mut [VERSION, 0, 0]);
        page.control(REGISTER, &mut [address as u64, PAGE as u64, MISSING, 0]);
        Some(page)
    }

    fn await_fault(&self) {
        let mut fds = [PollFd::new(
            std::os::fd::AsFd::as_fd(&self.faults),
            PollFlags::POLLIN,
        )];
        assert_eq!(
            poll(&mut fds, Some(PATIENCE)),
            Ok(1),
            "the write comes to the page"
        );
        let mut message = [0; 32];
        (&self.faults).read_exact(&mut message).expect("a message");
    }

    fn provide(&self, content: &[u8]) {
        let mut page = vec![0u8; PAGE];
        page[..content.len()].copy_from_slice(content);
        let (to, from) = (self.address as u64, page.as_ptr() as u64);
        self.control(COPY, &mut [to, from, PAGE as u64, 0, 0]);
    }

    fn control<const WORDS: usize>(&self, request: libc::Ioctl, words: &mut [u64; WORDS]) {
        // SAFETY: the words live across the call and are as many as the request has.
        let result = unsafe { libc::ioctl(self.faults.as_raw_fd(), request, words.as_mut_ptr()) };
        assert!(result >= 0, "userfaultfd: {}", io::Error::last_os_error());
    }
}

impl Drop for MissingPage {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and nobody uses it any more.
        unsafe { libc::munmap(self.address, PAGE) };
    }
}

/// Memory that this kernel takes for a segment beside its payload, in bytes: what a receiver
/// is charged for a segment of one byte, less that byte. Wants a network namespace of its own.
///
/// # Panics
/// When the loopback device cannot be used.
#[must_use]
pub fn segment_overhead() -> u32 {
    ip("link set lo up\n");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");
    let mut sender = TcpStream::connect(address).expect("a connection");
    let (mut receiver, _) = listener.accept().expect("a connection");
    sender.write_all(&[0]).expect("it is sent");
    assert!(until(|| charged(&receiver) > 0), "it arrives");
    let charged = charged(&receiver);
    receiver.read_exact(&mut [0]).expect("it is read");
    charged - 1
}

/// Memory that a socket is charged for what it has received and not handed on, in bytes.
fn charged(socket: &TcpStream) -> u32 {
    // The first of the kernel's numbers is SK_MEMINFO_RMEM_ALLOC.
    let received = socket_option::get(socket, (libc::SOL_SOCKET, libc::SO_MEMINFO));
    u32::from_ne_bytes(received.expect("SO_MEMINFO"))
}
