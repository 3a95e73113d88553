use std::net::IpAddr;

use etherparse::{
    NetSlice, PacketBuilder, SlicedPacket, TcpHeader, TcpOptionElement, TransportSlice,
};

use crate::tap::Frame;

const ETHERNET_HEADER: usize = 14;

/// A TCP segment of the kernel whose lengths and checksums are right.
#[derive(Debug)]
pub(crate) struct Segment {
    pub header: TcpHeader,
    pub payload: Vec<u8>,
    /// Its checksum was left to the device.
    pub offloaded: bool,
}

impl Segment {
    /// Reads a frame; `None` when it is not TCP.
    pub fn verify(frame: &Frame) -> Option<Self> {
        let packet = SlicedPacket::from_ethernet(&frame.bytes).expect("a well-formed frame");
        let Some(TransportSlice::Tcp(tcp)) = &packet.transport else {
            return None;
        };
        let ip_length = frame.bytes.len() - ETHERNET_HEADER;
        let checksum = match packet.net.as_ref()? {
            NetSlice::Ipv4(ip) => {
                let header = ip.header().to_header();
                assert_eq!(
                    usize::from(header.total_len),
                    ip_length,
                    "the IPv4 length is the frame's"
                );
                assert_eq!(
                    header.header_checksum,
                    header.calc_header_checksum(),
                    "the IPv4 header's checksum is right"
                );
                tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination())
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header().to_header();
                assert_eq!(
                    usize::from(header.payload_length) + 40,
                    ip_length,
                    "the IPv6 length is the frame's"
                );
                tcp.calc_checksum_ipv6(header.source, header.destination)
            }
            NetSlice::Arp(_) => return None,
        };
        let checksum = checksum.expect("a length that has a checksum");
        assert_eq!(tcp.checksum(), checksum, "the TCP checksum is right");
        Some(Self {
            header: tcp.to_header(),
            payload: tcp.payload().to_vec(),
            offloaded: frame.offloaded,
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
