//! Capture of segments on a host's device.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use pillion_tests::Host;

use super::packet_socket::PacketSocket;

/// TCP segment with payload over IPv4, as captured on a host's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
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
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<Seen>>>,
}

impl Watch {
    /// Starts to capture on a host's device; no later packet is missed.
    pub fn start(host: &Host, direction: PacketDirection) -> Self {
        let socket = host.namespace.enter(PacketSocket::open).expect("enter");
        let socket = socket.expect("a packet socket");
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let thread = std::thread::spawn(move || watch(&socket, direction, &ended));
        Self { stop, thread }
    }

    /// Stops and returns the captured segments in order. The last few packets may be missing.
    pub fn finish(self) -> Vec<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .expect("the capture")
            .expect("the capture is complete")
    }
}

fn watch(
    socket: &PacketSocket,
    direction: PacketDirection,
    ended: &AtomicBool,
) -> io::Result<Vec<Seen>> {
    let mut seen = Vec::new();
    let mut frame = [0; 128];
    while !ended.load(Ordering::Relaxed) {
        match socket.receive(&mut frame)? {
            Some((of_packet, bytes)) if of_packet == direction => {
                seen.extend(parse(&frame[..bytes]));
            }
            _ => {}
        }
    }
    match socket.missed()? {
        0 => Ok(seen),
        missed => Err(io::Error::other(format!("{missed} were missed"))),
    }
}

const ETHERNET: usize = 14;
const TCP: u8 = 6;

fn parse(frame: &[u8]) -> Option<Seen> {
    let (ethernet, packet) = frame.split_at_checked(ETHERNET)?;
    if !ethernet.ends_with(&[8, 0]) || packet.get(9) != Some(&TCP) {
        return None;
    }
    let ip_header = usize::from(packet[0] & 0xf) * 4;
    let length = half(packet, 2)?;
    let segment = packet.get(ip_header..)?;
    let tcp_header = usize::from(segment.get(12)? >> 4) * 4;
    let payload = usize::from(length).checked_sub(ip_header + tcp_header)?;
    let [a, b] = [half(segment, 4)?, half(segment, 6)?].map(u32::from);
    (payload > 0).then_some(Seen {
        ports: [half(segment, 0)?, half(segment, 2)?],
        id: half(packet, 4)?,
        seq: a << 16 | b,
        payload: payload as u16,
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
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
    fn a_segment_is_known_by_its_headers_even_if_cut_behind_them() {
        let seen = parse(&frame(120)).expect("a segment");
        assert_eq!(seen.ports, [0x1234, 80]);
        assert_eq!((seen.id, seen.seq), (7, 0x0102_0304));
        assert_eq!(seen.payload, 120);
    }

    #[test]
    fn what_carries_no_payload_or_is_cut_or_is_no_tcp_is_left_out() {
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
