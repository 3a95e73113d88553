//! Segments as the peer reads and writes them, with TCP MD5 signatures (RFC 2385; one key for all), and
//! the script that they are compared with.

use std::net::IpAddr;
use std::os::fd::AsFd;

use etherparse::{
    Ipv6Header, NetSlice, PacketBuilder, SlicedPacket, TcpHeader, TcpOptionElement, TcpSlice,
    TransportSlice,
};

use crate::socket::set_option;
use crate::tap::{ETHERNET_HEADER, Frame};

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
        let signature = has_right_signature(addresses(ip), &header, tcp.payload());
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

const KEY: &[u8] = b"rides pillion";

/// What precedes the digest in the option: two NOPs, kind, length.
const SIGNATURE_OPTION: [u8; 4] = [1, 1, 19, 18];
const DIGEST: usize = 16;

/// Bytes that the signature's option takes from the MSS.
pub(crate) const SIGNATURE_LENGTH: u16 = (SIGNATURE_OPTION.len() + DIGEST) as u16;

/// Has the kernel sign what it sends to a peer, and take in nothing that is not signed.
pub(crate) fn require_signature(socket: &impl AsFd, peer: IpAddr) {
    const ADDRESS_STORAGE: usize = 128;
    const KEY_STORAGE: usize = 80;
    // struct tcp_md5sig: a sockaddr_storage, flags, prefix, key's length, device, key.
    let (family, at, octets) = match peer {
        IpAddr::V4(address) => (libc::AF_INET, 4, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, 8, address.octets().to_vec()),
    };
    let mut value = vec![0; ADDRESS_STORAGE + 8 + KEY_STORAGE];
    value[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    value[at..at + octets.len()].copy_from_slice(&octets);
    value[ADDRESS_STORAGE + 2..][..2].copy_from_slice(&(KEY.len() as u16).to_ne_bytes());
    value[ADDRESS_STORAGE + 8..][..KEY.len()].copy_from_slice(KEY);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG, &value);
}

/// Adds the signature of a segment to its options.
pub(crate) fn sign(addresses: (IpAddr, IpAddr), header: &mut TcpHeader, payload: &[u8]) {
    let options = header.options.as_slice().to_vec();
    let signed = |digest| [&options[..], &SIGNATURE_OPTION, digest].concat();
    // The header's length is signed with the rest.
    let room = signed(&[0; DIGEST]);
    header.set_options_raw(&room).expect("the options fit");
    let digest = digest(addresses, header, payload);
    let options = signed(&digest);
    header.set_options_raw(&options).expect("the options fit");
}

/// Whether a segment carries the right signature; `None` if it carries none.
pub(crate) fn has_right_signature(
    addresses: (IpAddr, IpAddr),
    header: &TcpHeader,
    payload: &[u8],
) -> Option<bool> {
    let options = header.options.as_slice();
    let at = options
        .windows(SIGNATURE_OPTION.len())
        .position(|w| w == SIGNATURE_OPTION)?;
    let is = options.get(at + SIGNATURE_OPTION.len()..)?.get(..DIGEST)?;
    Some(is == digest(addresses, header, payload))
}

fn digest((from, to): (IpAddr, IpAddr), header: &TcpHeader, payload: &[u8]) -> [u8; DIGEST] {
    const PROTOCOL: u8 = 6;
    let length = (header.header_len() + payload.len()) as u32;
    let mut text = Vec::new();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            text.extend([from.octets(), to.octets()].concat());
            text.extend([0, PROTOCOL]);
            text.extend((length as u16).to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            text.extend([from.octets(), to.octets()].concat());
            text.extend(length.to_be_bytes());
            text.extend([0, 0, 0, PROTOCOL]);
        }
        mixed => panic!("one family at both ends, not {mixed:?}"),
    }
    let unsummed = TcpHeader {
        checksum: 0,
        ..header.clone()
    };
    text.extend(&unsummed.to_bytes()[..TcpHeader::MIN_LEN]);
    text.extend(payload);
    text.extend(KEY);
    md5::compute(text).0
}

/// What should have happened on the wire and what did, side by side.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Which variant of a test it is, printed with a failure.
    about: String,
    expected: Vec<String>,
    seen: Vec<String>,
}

impl Script {
    pub fn new(about: String) -> Self {
        Self {
            about,
            ..Self::default()
        }
    }

    /// Notes something that the test itself did.
    pub fn note(&mut self, event: &str) {
        self.expected.push(event.to_owned());
        self.seen.push(event.to_owned());
    }

    /// Notes something that the kernel did, or did not.
    pub fn compare(&mut self, expected: &str, seen: &str) {
        self.expected.push(expected.to_owned());
        self.seen.push(seen.to_owned());
        if expected != seen {
            self.fail("the wire differs from the script");
        }
    }

    pub fn fail(&self, why: &str) -> ! {
        panic!(
            "{why}\n  expected  {}\n  seen      {}\n  {}",
            self.expected.join(" "),
            self.seen.join(" "),
            self.about
        )
    }
}

/// Reads `1:101` into its two numbers, each a position in the stream.
pub(crate) fn range(text: &str) -> (u32, u32) {
    text.split_once(':')
        .and_then(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?)))
        .unwrap_or_else(|| panic!("a range like 1:101, not {text:?}"))
}

/// The stream's bytes from one position to another. No two stretches look alike, so
/// that a copy from the wrong place is found.
pub(crate) fn content(start: u32, end: u32) -> Vec<u8> {
    (start..end)
        .map(|position| (position.wrapping_mul(0x9e37_79b1) >> 24) as u8)
        .collect()
}
