//! TCP Fast Open (RFC 7413): connections that begin with data.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrStorage, sendto};

use crate::script::content;
use crate::wire::accept;
use crate::{Wire, socket, sysctl};

impl Wire {
    /// Ends the connection and opens another one with the same socket, to a port of the peer's,
    /// that is to begin with so many bytes. Returns how many the SYN carried: none the first time,
    /// when the peer has not given its cookie yet; the peer takes them in or not. What follows the
    /// SYN-ACK is left to the script.
    pub fn reconnect_with_data(&mut self, port: u16, bytes: u32, taken: bool) -> u32 {
        self.script.note(&format!("fast_open={port}+{bytes}"));
        socket::disconnect(&self.stream);
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
        socket::disconnect(&self.stream);
        self.peer.port = port;
        let data = content(1, 1 + bytes);
        self.stream = accept(&self.setup, &mut self.peer, |peer| peer.begin(&data));
        self.written = 0;
    }
}
