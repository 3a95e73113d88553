//! Capture of TCP segments on a host's device.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;
use pillion_bpf::host::socket_option;
use pillion_tests::Host;

/// TCP segment with payload over IPv4, as captured on a host's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedSegment {
    /// The sender's and the receiver's port.
    pub ports: [u16; 2],
    /// The packet's IPv4 identification, which counts the packets of a connection.
    pub id: u16,
    /// Sequence number of the segment's first byte of payload.
    pub seq: u32,
    /// Bytes of payload in the segment.
    pub payload: u16,
}

/// Direction of the captured packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketDirection {
    /// Packets that the host sends, as the device receives them.
    Outgoing,
    /// Packets that arrive at the host.
    Incoming,
}

/// Captures the segments with payload on a host's device.
///
/// It captures where packet sockets do: after the egress programs, before the ingress programs.
#[derive(Debug)]
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<CapturedSegment>>>,
}

impl Capture {
    /// Starts to capture on a host's device; no later packet is missed.
    pub fn start(host: &Host, direction: PacketDirection) -> Self {
        let socket = host.namespace.enter(PacketSocket::open).expect("enter");
        let socket = socket.expect("a packet socket");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || capture_segments(&socket, direction, &stopped));
        Self { stop, thread }
    }

    /// Stops and returns the captured segments in order. The last few packets may be missing.
    pub fn finish(self) -> Vec<CapturedSegment> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .expect("the capture")
            .expect("the capture is complete")
    }
}

fn capture_segments(
    socket: &PacketSocket,
    direction: PacketDirection,
    stopped: &AtomicBool,
) -> io::Result<Vec<CapturedSegment>> {
    let mut captured = Vec::new();
    let mut frame = [0; 128];
    while !stopped.load(Ordering::Relaxed) {
        match socket.receive(&mut frame)? {
            Some((packet_direction, bytes)) if packet_direction == direction => {
                captured.extend(parse(&frame[..bytes]));
            }
            _ => {}
        }
    }
    match socket.missed()? {
        0 => Ok(captured),
        missed => Err(io::Error::other(format!("{missed} were missed"))),
    }
}

const ETHERNET: usize = 14;
const TCP: u8 = 6;

fn parse(frame: &[u8]) -> Option<CapturedSegment> {
    let (ethernet, packet) = frame.split_at_checked(ETHERNET)?;
    if !ethernet.ends_with(&[8, 0]) || packet.get(9) != Some(&TCP) {
        return None;
    }
    let ip_header = usize::from(packet[0] & 0xf) * 4;
    let length = read_u16(packet, 2)?;
    let segment = packet.get(ip_header..)?;
    let tcp_header = usize::from(segment.get(12)? >> 4) * 4;
    let payload = usize::from(length).checked_sub(ip_header + tcp_header)?;
    let [a, b] = [read_u16(segment, 4)?, read_u16(segment, 6)?].map(u32::from);
    (payload > 0).then_some(CapturedSegment {
        ports: [read_u16(segment, 0)?, read_u16(segment, 2)?],
        id: read_u16(packet, 4)?,
        seq: a << 16 | b,
        payload: payload as u16,
    })
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([two[0], two[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: u8) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET + 20 + 32];
        frame[12] = 8;
        let ip = &mut frame[ETHERNET..];
        ip[0] = 0x45;
        ip[3] = 52 + payload;
        ip[5] = 7;
        ip[9] = TCP;
        let tcp = &mut ip[20..];
        tcp[..8].copy_from_slice(&[0x12, 0x34, 0, 80, 1, 2, 3, 4]);
        tcp[12] = 0x80;
        frame
    }

    #[test]
    fn segment_is_parsed_from_headers_of_truncated_frame() {
        let captured = parse(&frame(120)).expect("a segment");
        assert_eq!(captured.ports, [0x1234, 80]);
        assert_eq!((captured.id, captured.seq), (7, 0x0102_0304));
        assert_eq!(captured.payload, 120);
    }

    #[test]
    fn empty_truncated_and_non_tcp_packets_are_ignored() {
        assert_eq!(parse(&frame(0)), None);
        let whole = frame(120);
        for length in 0..ETHERNET + 20 + 13 {
            assert_eq!(parse(&whole[..length]), None);
        }
        let mut udp = frame(120);
        udp[ETHERNET + 9] = 17;
        assert_eq!(parse(&udp), None);
    }
}

/// Packet socket that receives all packets of a network namespace's devices.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

/// Receive-buffer bytes: some seconds of a busy path.
const BUFFER: usize = 16 << 20;
/// Longest wait for one packet.
const TIMEOUT: Duration = Duration::from_millis(50);

impl PacketSocket {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> io::Result<Self> {
        let kind = SockType::Raw;
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Packet, kind, flags, SockProtocol::EthAll)?;
        setsockopt(&fd, sockopt::RcvBufForce, &BUFFER)?;
        let timeout = TimeVal::new(0, TIMEOUT.subsec_micros().into());
        setsockopt(&fd, sockopt::ReceiveTimeout, &timeout)?;
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
