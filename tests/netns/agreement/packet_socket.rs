use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;
use pillion_bpf::host::socket_option;

use super::watch::PacketDirection;

/// A socket that sees all that passes the devices of a network namespace.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

/// Bytes of room for packets that wait for the thread: some seconds of a busy path.
const BUFFER: usize = 16 << 20;
/// How long a wait for a packet lasts at most.
const PATIENCE: Duration = Duration::from_millis(50);

impl PacketSocket {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> io::Result<Self> {
        let kind = SockType::Raw;
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Packet, kind, flags, SockProtocol::EthAll)?;
        setsockopt(&fd, sockopt::RcvBufForce, &BUFFER)?;
        let patience = TimeVal::new(0, PATIENCE.subsec_micros().into());
        setsockopt(&fd, sockopt::ReceiveTimeout, &patience)?;
        Ok(Self(fd))
    }

    /// The next packet's direction and the length of what is kept of it; `None` if none comes for a
    /// while.
    pub fn receive(&self, frame: &mut [u8]) -> io::Result<Option<(PacketDirection, usize)>> {
        match recvfrom::<LinkAddr>(self.0.as_raw_fd(), frame) {
            Ok((bytes, from)) => {
                let outgoing = from.is_some_and(|from| from.pkttype() == libc::PACKET_OUTGOING);
                let direction = if outgoing {
                    PacketDirection::Outgoing
                } else {
                    PacketDirection::Incoming
                };
                Ok(Some((direction, bytes)))
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Packets that found no room in the socket, since the last call.
    pub fn missed(&self) -> io::Result<u32> {
        Ok(socket_option::missed_packets(&self.0)?)
    }
}
