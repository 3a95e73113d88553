use std::net::IpAddr;

use etherparse::{
    Ipv6Header, NetSlice, PacketBuilder, SlicedPacket, TcpHeader, TcpOptionElement, TcpSlice,
    TransportSlice,
};

use crate::link::ETHERNET_HEADER;
use crate::signature;
use crate::tap::Frame;

/// A TCP segment that the kernel sent.
#[derive(Debug)]
pub(crate) struct Segment {
    pub header: TcpHeader,
    pub payload: Vec<u8>,
    /// True if the segment's checksum was left to the device.
    pub offloaded: bool,
    /// True if the segment carries a signature.
    pub signed: bool,
    /// What is wrong with the segment's link header, length, checksum or signature.
    pub fault: Option<String>,
}

impl Segment {
    /// Reads a frame; `None` when it is not TCP.
    pub fn read(frame: &Frame) -> Option<Self> {
        let packet = SlicedPacket::from_ethernet(&frame.bytes).expect("a well-formed frame");
        let TransportSlice::Tcp(tcp) = packet.transport.as_ref()? else {
            return None;
        };
        let ip_length = frame.bytes.len() - ETHERNET_HEADER;
        let (ip, header) = (packet.net.as_ref()?, tcp.to_header());
        let signature = signature::is_right(addresses(ip), &header, tcp.payload());
        let wrong = (signature == Some(false)).then(|| "the signature is wrong".to_owned());
        Some(Self {
            header,
            payload: tcp.payload().to_vec(),
            offloaded: frame.offloaded,
            signed: signature.is_some(),
            fault: frame.fault.clone().or(fault(ip, tcp, ip_length)).or(wrong),
        })
    }

    /// The sender's clock, where the timestamps option is in use.
    pub fn timestamp(&self) -> Option<u32> {
        self.header
            .options
            .elements_iter()
            .find_map(|option| match option {
                Ok(TcpOptionElement::Timestamp(value, _)) => Some(value),
                _ => None,
            })
    }
}

fn addresses(ip: &NetSlice) -> (IpAddr, IpAddr) {
    match ip {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            (
                header.source_addr().into(),
                header.destination_addr().into(),
            )
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            (
                header.source_addr().into(),
                header.destination_addr().into(),
            )
        }
        NetSlice::Arp(_) => panic!("TCP in ARP"),
    }
}

fn fault(ip: &NetSlice, tcp: &TcpSlice, ip_length: usize) -> Option<String> {
    let checksum = match ip {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            if usize::from(header.total_len) != ip_length {
                return Some(format!("IPv4 length {}, not {ip_length}", header.total_len));
            }
            let (is, right) = (header.header_checksum, header.calc_header_checksum());
            if is != right {
                return Some(format!("IPv4 checksum {is:04x}, not {right:04x}"));
            }
            tcp.calc_checksum_ipv4(header.source, header.destination)
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header().to_header();
            let length = usize::from(header.payload_length) + Ipv6Header::LEN;
            if length != ip_length {
                return Some(format!("IPv6 length {length}, not {ip_length}"));
            }
            tcp.calc_checksum_ipv6(header.source, header.destination)
        }
        NetSlice::Arp(_) => return Some("TCP in ARP".to_owned()),
    };
    let (is, right) = (tcp.checksum(), checksum.expect("a length that has one"));
    // Zero has two forms, and the kernel may write the other one.
    (is % 0xffff != right % 0xffff).then(|| format!("TCP checksum {is:04x}, not {right:04x}"))
}

/// Puts a header with destination options, which says nothing, between a frame's IPv6 header and its
/// segment.
pub(crate) fn put_destination_options(frame: &mut Vec<u8>) {
    const IPV6: usize = 14;
    const DESTINATION_OPTIONS: u8 = 60;
    const PAD_4: [u8; 6] = [1, 4, 0, 0, 0, 0];
    let tcp = std::mem::replace(&mut frame[IPV6 + 6], DESTINATION_OPTIONS);
    let length = u16::from_be_bytes([frame[IPV6 + 4], frame[IPV6 + 5]]) + 8;
    frame[IPV6 + 4..IPV6 + 6].copy_from_slice(&length.to_be_bytes());
    let header = [[tcp, 0].as_slice(), &PAD_4].concat();
    let behind = IPV6 + Ipv6Header::LEN;
    frame.splice(behind..behind, header);
}

/// A frame with a TCP segment, lengths and checksums filled in.
pub(crate) fn frame(
    [from, to]: [[u8; 6]; 2],
    addresses: (IpAddr, IpAddr),
    header: TcpHeader,
    payload: &[u8],
) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2(from, to);
    let ip = match addresses {
        (IpAddr::V4(from), IpAddr::V4(to)) => ethernet.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => ethernet.ipv6(from.octets(), to.octets(), 64),
        mixed => panic!("one family at both ends, not {mixed:?}"),
    };
    let tcp = ip.tcp_header(header);
    let mut frame = Vec::with_capacity(tcp.size(payload.len()));
    tcp.write(&mut frame, payload).expect("a frame is built");
    frame
}
