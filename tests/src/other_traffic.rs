//! Traffic on the device other than segments of the connection under test.

use std::net::{IpAddr, Ipv4Addr};

use etherparse::{Ipv4Slice, PacketBuilder, TcpHeader, TcpSlice, ether_type};

use crate::netns::{ip, sysctl};
use crate::peer::{PEER_PORT, TIMEOUT};
use crate::segment::content;
use crate::tap::{ETHERNET_HEADER, LOCAL_MAC, Link, PEER_MAC, TAP, Tap};
use crate::{Wire, socket};

/// Second device of a test's namespace, from which packets for the peer are forwarded.
pub struct Router {
    tap: Tap,
}

/// Second device, its hardware address, and a host reached through it.
const SECOND_TAP: &str = "tap1";
const SECOND_MAC: [u8; 6] = [2, 0, 0, 0, 0, 4];
const HOST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 5];

/// Reassembled IPv4 packet.
#[derive(Debug)]
pub struct Packet {
    /// Number of fragments; 1 if the packet was not fragmented.
    pub fragments: usize,
    /// All bytes after the IP header.
    pub payload: Vec<u8>,
}

impl Wire {
    /// Returns the next IPv4 packet of any protocol, after checking its headers.
    pub fn packet(&mut self) -> Packet {
        let mut packet = Packet {
            fragments: 0,
            payload: Vec::new(),
        };
        loop {
            let frame = self.peer.frame(TIMEOUT).expect("a packet");
            if frame[12..ETHERNET_HEADER] == ether_type::IPV6.0.to_be_bytes() {
                // Neighbour discovery and the like, sent by the kernel itself.
                continue;
            }
            let ip = Ipv4Slice::from_slice(&frame[ETHERNET_HEADER..]).expect("IPv4");
            let header = ip.header().to_header();
            assert_eq!(usize::from(header.total_len) + ETHERNET_HEADER, frame.len());
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            let offset = usize::from(header.fragment_offset.value()) * 8;
            assert_eq!(offset, packet.payload.len(), "fragments come in order");
            packet.payload.extend(ip.payload().payload);
            packet.fragments += 1;
            if !header.more_fragments {
                return packet;
            }
        }
    }

    /// Writes `bytes` bytes of the stream and expects a TCP segment in IP fragments.
    pub fn sends_in_fragments(&mut self, bytes: u32) {
        let start = self.written + 1;
        self.script.note(&format!("{start}:{}/", start + bytes));
        self.write(bytes);
        let packet = self.packet();
        assert!(packet.fragments > 1, "{packet:?}");
        let segment = TcpSlice::from_slice(&packet.payload).expect("a segment");
        let checksum = segment.calc_checksum_ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
        assert_eq!(segment.checksum(), checksum.expect("a length that has one"));
        assert_eq!(self.peer.position(segment.sequence_number()), start);
        assert_eq!(segment.payload(), content(start, start + bytes));
    }

    /// Reconnects with a device MTU of `mtu` bytes, while the route announces room for full
    /// segments and IP may fragment.
    pub fn reconnect_with_fragments(&mut self, port: u16, mtu: u16) {
        const PMTUDISC_OMIT: libc::c_int = 5;
        let peer = self.setup.ip.peer();
        let believed = self.setup.mss + 40;
        ip(&format!(
            "route change {peer}/32 dev {TAP} mtu {believed}\n"
        ));
        self.set_option(
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
            &PMTUDISC_OMIT.to_ne_bytes(),
        );
        self.set_mtu(mtu);
        // A connection with a cached route may briefly see a tiny MTU there.
        self.reconnect(port);
    }

    /// Turns the namespace into a router.
    #[must_use]
    pub fn router(&self) -> Router {
        let tap = Tap::open(SECOND_TAP, false, Link::Ethernet { tags: 0 }, false);
        let mac = crate::tap::mac(SECOND_MAC);
        ip(&format!(
            "link set {SECOND_TAP} address {mac} up\n\
             address add 10.1.0.1/24 dev {SECOND_TAP}\n"
        ));
        sysctl("net.ipv4.ip_forward", "1");
        Router { tap }
    }

    /// Closes the socket, even with unread data.
    pub fn close(&mut self) {
        self.script.note("close");
        self.stream = socket::new(self.setup.ip.peer()).into();
    }
}

impl Router {
    /// Injects a segment between two other hosts and checks that it leaves by the first device,
    /// changed only as a router does.
    pub fn forwards(&self, wire: &mut Wire, start: u32, end: u32) {
        let IpAddr::V4(peer) = wire.setup.ip.peer() else {
            panic!("supports only IPv4");
        };
        let payload = content(start, end);
        let build = |macs: [[u8; 6]; 2], hops| {
            let mut header = TcpHeader::new(5555, PEER_PORT, start, 1000);
            (header.ack, header.psh) = (true, true);
            let packet = PacketBuilder::ethernet2(macs[0], macs[1])
                .ipv4(HOST.octets(), peer.octets(), hops)
                .tcp_header(header);
            let mut frame = Vec::new();
            packet.write(&mut frame, &payload).expect("a frame");
            frame
        };
        self.tap.write(&build([HOST_MAC, SECOND_MAC], 64));
        let frame = wire.peer.frame(TIMEOUT).expect("it is forwarded");
        assert_eq!(frame, build([LOCAL_MAC, PEER_MAC], 63));
    }
}
