//! Test stream over a path, either plain or bundled as much as possible.

use std::io::Read;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{Backlog, MsgFlags, SockaddrStorage, bind, connect, listen, send};
use pillion_bpf::host::interruption::retry;
use pillion_bpf::{
    Attachment, Counters, Device, Options, Policy, Programs, Rule, Scope, ThinTest, open_cgroup2,
};
use pillion_tests::{HostPair, limit_one};

use crate::common::clean_pair;

/// Transport of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Plain TCP.
    Plain,
    /// TCP with a bundler that treats every stream as thin, without limits.
    Bundled,
    /// MPTCP with the same bundler.
    BundledMptcp,
}

/// Results of a stream.
#[derive(Debug)]
pub struct Transfer<S, R> {
    /// Return value of the sending end.
    pub sent: S,
    /// Return value of the receiving end.
    pub received: R,
    /// Counters of the bundler.
    pub counters: Option<Counters>,
}

/// Runs both ends of a stream. The sending half is closed when `send` returns.
pub fn transfer<S: Send + 'static, R: Send + 'static>(
    transport: Transport,
    send: impl FnOnce(&TcpStream) -> S + Send + 'static,
    receive: impl FnOnce(TcpStream) -> R + Send + 'static,
) -> Transfer<S, R> {
    transfer_over(&clean_pair(), transport, send, receive)
}

/// Like [`transfer`], from the sender of a pair to its receiver.
pub fn transfer_over<S: Send + 'static, R: Send + 'static>(
    pair: &HostPair,
    transport: Transport,
    send: impl FnOnce(&TcpStream) -> S + Send + 'static,
    receive: impl FnOnce(TcpStream) -> R + Send + 'static,
) -> Transfer<S, R> {
    let address = SocketAddr::V4(SocketAddrV4::new(pair.receiver.address, 7777));
    let listener = pair
        .receiver
        .namespace
        .enter(move || listener(transport, address))
        .expect("a listener");
    let receiver = pair
        .receiver
        .namespace
        .spawn(move || receive(listener.accept().expect("a connection").0));
    let sender = pair.sender.namespace.enter(move || {
        let attachment = (transport != Transport::Plain).then(attach);
        let socket = socket(transport);
        let address = SockaddrStorage::from(address);
        retry(|| connect(socket.as_raw_fd(), &address)).expect("connect");
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let sent = send(&stream);
        stream
            .shutdown(std::net::Shutdown::Write)
            .expect("shutdown");
        let received = receiver.join().expect("a receiver").expect("its namespace");
        let totals = attachment.map(|attachment| attachment.totals().expect("totals"));
        Transfer {
            sent,
            received,
            counters: totals.map(|totals| totals.counters),
        }
    });
    sender.expect("a sender")
}

/// Like [`transfer`], where the receiver reads everything.
pub fn transfer_all<S: Send + 'static>(
    transport: Transport,
    send: impl FnOnce(&TcpStream) -> S + Send + 'static,
) -> Transfer<S, Vec<u8>> {
    transfer(transport, send, read_to_end)
}

/// Reads the rest of a stream.
pub fn read_to_end(mut stream: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("the stream's end");
    all
}

/// Returns test data in which no two sections are alike.
pub fn test_data(bytes: usize) -> Vec<u8> {
    (0..bytes as u32)
        .map(|position| (position.wrapping_mul(0x9e37_79b1) >> 24) as u8)
        .collect()
}

/// Sends data in messages. They are far enough apart to leave as single segments, and close enough
/// that several are outstanding.
pub fn send_spaced(stream: &TcpStream, data: &[u8], message: usize, flags: i32) {
    for part in data.chunks(message) {
        let flags = MsgFlags::from_bits_retain(flags);
        let sent = retry(|| send(stream.as_raw_fd(), part, flags)).expect("sent");
        assert_eq!(sent, part.len());
        pause();
    }
}

/// Waits for the interval between two messages.
pub fn pause() {
    thread::sleep(Duration::from_millis(5));
}

/// Creates an unconnected socket.
pub fn socket(transport: Transport) -> OwnedFd {
    let protocol = match transport {
        Transport::BundledMptcp => libc::IPPROTO_MPTCP,
        Transport::Plain | Transport::Bundled => libc::IPPROTO_TCP,
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: three integers.
    let fd = unsafe { libc::socket(libc::AF_INET, kind, protocol) };
    assert!(fd >= 0, "socket: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new and unshared.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn listener(transport: Transport, address: SocketAddr) -> TcpListener {
    let socket = socket(transport);
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address)).expect("bind");
    listen(&socket, Backlog::new(1).expect("a backlog")).expect("listen");
    socket.into()
}

/// Attaches a bundler to this host's device that treats every stream as thin, without limits.
pub fn attach() -> Attachment {
    attach_with(Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        ..limit_one()
    })
}

/// Attaches a bundler to this host's device.
pub fn attach_with(options: Options) -> Attachment {
    let policy = Policy {
        rules: vec![Rule::all(options)],
        scope: Scope::ThisNamespace,
        ..Policy::default()
    };
    let programs = Programs::load(&policy).expect("the programs load");
    let cgroup = open_cgroup2().expect("cgroup v2");
    let devices = Device::select(&["tap0".to_owned()]).expect("the device");
    Attachment::new(programs, cgroup.as_fd(), &devices).expect("the programs attach")
}
