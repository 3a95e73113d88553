//! Operations on the socket under test. It can be opened with data (TCP Fast Open, RFC 7413),
//! replaced as from a checkpoint (TCP_REPAIR), or held by a write that blocks on a missing page.

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
use nix::unistd::{SysconfVar, sysconf};
use pillion_bpf::host::interruption::poll;
use pillion_bpf::host::socket_option;

use crate::netns::ip;
use crate::peer::TIMEOUT;
use crate::segment::content;
use crate::wire::accept;
use crate::{Wire, sysctl};

/// Creates a non-blocking, unconnected TCP socket.
pub(crate) fn new(address: IpAddr) -> OwnedFd {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    socket(family, SockType::Stream, flags, None).expect("a socket")
}

/// Starts to connect a socket.
pub(crate) fn start_connect(socket: &impl AsRawFd, peer: SocketAddr) {
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(peer)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(error) => panic!("connect to {peer}: {error}"),
    }
}

/// Disconnects a socket immediately, so that it can be used for another connection.
///
/// # Panics
/// If the kernel refuses.
pub fn disconnect(socket: &TcpStream) {
    // SAFETY: plain integers, for which all zeroes is a value: AF_UNSPEC.
    let unspecified: libc::sockaddr = unsafe { mem::zeroed() };
    let length = size_of_val(&unspecified) as libc::socklen_t;
    // SAFETY: the address is valid during the call and has the stated length.
    let result = unsafe { libc::connect(socket.as_raw_fd(), &raw const unspecified, length) };
    assert_eq!(result, 0, "disconnect: {}", io::Error::last_os_error());
}

/// Makes close() abort the connection, so that nothing remains in the kernel.
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

/// Creates a listening socket with a backlog of one.
pub(crate) fn listener(address: SocketAddr) -> TcpListener {
    let socket = new(address.ip());
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address)).expect("bind");
    listen(&socket, Backlog::new(1).expect("a backlog of one")).expect("listen");
    socket.into()
}

/// Sets the initial sequence number of an unconnected socket.
pub(crate) fn set_isn(socket: &impl AsFd, isn: u32) {
    const TCP_REPAIR_OFF_NO_WP: libc::c_int = -1;
    for (option, value) in [
        (libc::TCP_REPAIR, 1),
        (libc::TCP_REPAIR_QUEUE, TCP_SEND_QUEUE),
        (libc::TCP_QUEUE_SEQ, isn.cast_signed()),
        (libc::TCP_REPAIR, TCP_REPAIR_OFF_NO_WP),
    ] {
        set_option(socket, libc::IPPROTO_TCP, option, &i32::to_ne_bytes(value));
    }
}

/// Sets a socket option.
///
/// # Panics
/// If the kernel refuses.
pub fn set_option(socket: impl AsFd, level: i32, option: i32, value: &[u8]) {
    socket_option::set(socket, (level, option), value)
        .unwrap_or_else(|error| panic!("socket option {level}/{option}={value:?}: {error}"));
}

/// Reads an integer socket option.
pub(crate) fn option(socket: impl AsFd, level: i32, option: i32) -> i32 {
    let value = socket_option::get(socket, (level, option));
    let value = value.unwrap_or_else(|error| panic!("socket option {level}/{option}: {error}"));
    i32::from_ne_bytes(value)
}

/// Returns written bytes that are not yet acknowledged.
pub(crate) fn unacknowledged(socket: &TcpStream) -> u32 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ writes one integer, which is valid during the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(result, 0, "TIOCOUTQ: {}", io::Error::last_os_error());
    bytes.cast_unsigned()
}

/// Returns written bytes that TCP has not sent yet.
pub(crate) fn unsent(socket: &TcpStream) -> u32 {
    /// `SIOCOUTQNSD` of the kernel's `linux/sockios.h`: bytes not sent.
    const SIOCOUTQNSD: libc::Ioctl = 0x894b;
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQNSD writes one integer, which is valid during the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCOUTQNSD, &raw mut bytes) };
    assert_eq!(result, 0, "SIOCOUTQNSD: {}", io::Error::last_os_error());
    bytes.cast_unsigned()
}

/// Returns the number of selectively acknowledged segments.
pub(crate) fn sacked(socket: &TcpStream) -> u32 {
    tcp_info(socket).tcpi_sacked
}

/// Returns the kernel's state of a connection (`TCP_INFO`).
///
/// # Panics
/// If the kernel refuses.
#[must_use]
pub fn tcp_info(socket: &TcpStream) -> libc::tcp_info {
    const BYTES: usize = size_of::<libc::tcp_info>();
    let info = socket_option::get::<BYTES>(socket, (libc::IPPROTO_TCP, libc::TCP_INFO));
    // SAFETY: plain integers, for which any bytes are a value.
    unsafe { mem::transmute(info.expect("TCP_INFO")) }
}

/// Waits until a condition is true; returns false after the timeout.
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

impl Wire {
    /// Reconnects the socket to another port of the peer, with data in the SYN. Returns how many
    /// bytes the SYN carried: 0 the first time, because the peer has not sent its cookie yet. The
    /// peer acknowledges them if `accept_payload`. The script handles everything after the SYN-ACK.
    pub fn reconnect_with_data(&mut self, port: u16, bytes: u32, accept_payload: bool) -> u32 {
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
        let carried = self.peer.accept_data(accept_payload);
        assert_eq!(carried, content(1, 1 + sent), "the data of the SYN");
        self.written = sent;
        sent
    }

    /// Ends the connection and accepts one from another peer port with data in its SYN. The script
    /// sends the last ACK of the handshake.
    pub fn accept_with_data(&mut self, port: u16, bytes: u32) {
        const ACCEPT_WITHOUT_COOKIE_OR_SOCKET_OPTION: &str = "1539";
        self.script.note(&format!("fast_open<{port}+{bytes}"));
        sysctl(
            "net.ipv4.tcp_fastopen",
            ACCEPT_WITHOUT_COOKIE_OR_SOCKET_OPTION,
        );
        disconnect(&self.stream);
        self.peer.port = port;
        let data = content(1, 1 + bytes);
        self.stream = accept(&self.setup, &mut self.peer, |peer| {
            peer.start_connection(&data);
        });
        self.written = 0;
    }
}

/// Queue numbers of TCP_REPAIR_QUEUE.
const TCP_RECV_QUEUE: i32 = 1;
const TCP_SEND_QUEUE: i32 = 2;
/// Codes of `struct tcp_repair_opt` for the peer's handshake options.
const TCPOPT_MSS: u32 = 2;
const TCPOPT_SACK_PERMITTED: u32 = 4;
const TCPOPT_TIMESTAMP: u32 = 8;

impl Wire {
    /// Moves the connection, of which everything is acknowledged, to another socket. It probes the
    /// peer's window with the byte before the next one, and sends nothing until it has the answer.
    pub fn restore(&mut self) {
        self.script.note("restore");
        let old = &self.stream;
        let [local, peer] = [old.local_addr(), old.peer_addr()].map(|it| it.expect("an end"));
        let mss = self.setup.mss.into();
        let clock = get(old, libc::TCP_TIMESTAMP);
        set(old, libc::TCP_REPAIR, 1);
        let queues = [TCP_SEND_QUEUE, TCP_RECV_QUEUE].map(|queue| {
            set(old, libc::TCP_REPAIR_QUEUE, queue);
            (queue, get(old, libc::TCP_QUEUE_SEQ))
        });
        // In repair mode, disconnecting sends nothing to the peer. Closing is not enough: a process
        // that another test starts at this moment shares the socket until it executes its program.
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
        start_connect(new, peer);
        let mut options = vec![(TCPOPT_MSS, mss)];
        options.extend(self.setup.sack.then_some((TCPOPT_SACK_PERMITTED, 0)));
        options.extend(self.setup.timestamps.then_some((TCPOPT_TIMESTAMP, 0)));
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

/// `UFFDIO_API` of the kernel's `linux/userfaultfd.h`.
const UFFDIO_API: libc::Ioctl = nix::request_code_readwrite!(0xaa, 0x3f, 24);
const UFFDIO_REGISTER: libc::Ioctl = nix::request_code_readwrite!(0xaa, 0x00, 32);
const UFFDIO_COPY: libc::Ioctl = nix::request_code_readwrite!(0xaa, 0x03, 40);
const UFFD_API: u64 = 0xaa;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;

impl Wire {
    /// Writes `bytes` bytes while the application holds the socket, which lasts until `meanwhile`
    /// returns; incoming packets are queued. Returns false if the kernel has no userfaultfd.
    pub fn write_while_held(&mut self, bytes: u32, meanwhile: impl FnOnce(&mut Self)) -> bool {
        let Some(page) = UserfaultPage::new() else {
            return false;
        };
        self.script.note(&format!("held={bytes}"));
        let start = self.written + 1;
        self.written += bytes;
        let content = content(start, start + bytes);
        let socket = self.stream.as_raw_fd();
        let address = page.address as usize;
        thread::scope(|scope| {
            let length = content.len();
            // SAFETY: the page is mapped until the end of this scope.
            let write = move || unsafe { libc::send(socket, address as *const _, length, 0) };
            let writer = scope.spawn(write);
            page.wait_for_fault();
            meanwhile(self);
            page.fill(&content);
            let written = writer.join().expect("the writer ends");
            assert_eq!(written, content.len().cast_signed(), "the write");
        });
        true
    }
}

/// Page of memory without content, and a descriptor that reports accesses to it.
struct UserfaultPage {
    address: *mut libc::c_void,
    size: usize,
    faults: File,
}

impl UserfaultPage {
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
        // SAFETY: a valid, new file descriptor that nothing else owns.
        let faults = unsafe { File::from_raw_fd(fd as i32) };
        let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        let size = usize::try_from(size.expect("a page size")).expect("positive");
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED, "mmap");
        let page = Self {
            address,
            size,
            faults,
        };
        page.ioctl(UFFDIO_API, &mut [UFFD_API, 0, 0]);
        page.ioctl(
            UFFDIO_REGISTER,
            &mut [address as u64, size as u64, UFFDIO_REGISTER_MODE_MISSING, 0],
        );
        Some(page)
    }

    fn wait_for_fault(&self) {
        let mut fds = [PollFd::new(
            std::os::fd::AsFd::as_fd(&self.faults),
            PollFlags::POLLIN,
        )];
        assert_eq!(
            poll(&mut fds, Some(TIMEOUT)),
            Ok(1),
            "the write comes to the page"
        );
        let mut message = [0; 32];
        (&self.faults).read_exact(&mut message).expect("a message");
    }

    fn fill(&self, content: &[u8]) {
        let mut page = vec![0u8; self.size];
        page[..content.len()].copy_from_slice(content);
        let (to, from) = (self.address as u64, page.as_ptr() as u64);
        self.ioctl(UFFDIO_COPY, &mut [to, from, self.size as u64, 0, 0]);
    }

    fn ioctl<const WORDS: usize>(&self, request: libc::Ioctl, words: &mut [u64; WORDS]) {
        // SAFETY: the words are valid during the call and match the request.
        let result = unsafe { libc::ioctl(self.faults.as_raw_fd(), request, words.as_mut_ptr()) };
        assert!(result >= 0, "userfaultfd: {}", io::Error::last_os_error());
    }
}

impl Drop for UserfaultPage {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it, and it is no longer used.
        unsafe { libc::munmap(self.address, self.size) };
    }
}

/// Returns the memory that this kernel charges for a segment in addition to its payload, in bytes.
/// It is measured with a segment of one byte, in a separate network namespace.
///
/// # Panics
/// If the loopback device cannot be used.
#[must_use]
pub fn segment_overhead() -> u32 {
    ip("link set lo up\n");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");
    let mut sender = TcpStream::connect(address).expect("a connection");
    let (mut receiver, _) = listener.accept().expect("a connection");
    sender.write_all(&[0]).expect("it is sent");
    assert!(wait_until(|| receive_memory(&receiver) > 0), "it arrives");
    let receive_memory = receive_memory(&receiver);
    receiver.read_exact(&mut [0]).expect("it is read");
    receive_memory - 1
}

/// Returns the memory charged to a socket for unread data, in bytes.
fn receive_memory(socket: &TcpStream) -> u32 {
    // The first of the kernel's numbers is SK_MEMINFO_RMEM_ALLOC.
    let received = socket_option::get(socket, (libc::SOL_SOCKET, libc::SO_MEMINFO));
    u32::from_ne_bytes(received.expect("SO_MEMINFO"))
}
