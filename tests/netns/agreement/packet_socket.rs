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

/// Packet socket that receives all packets of a network namespace's devices.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

/// Receive-buffer bytes: some seconds of a busy path.
const BUFFER: usize = 16 << 20;
/// Longest wait for one packet.
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

    /// Receives a packet: its direction and captured length. Returns `None` if none arrives in
    /// time.
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

    /// Returns the number of packets dropped for lack of buffer space since the last call.
    pub fn missed(&self) -> io::Result<u32> {
        Ok(socket_option::missed_packets(&self.0)?)
    }
}
