use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use pillion_bpf::host::socket_option;

use crate::netns::ip;
use crate::socket;

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
    assert!(socket::until(|| charged(&receiver) > 0), "it arrives");
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
