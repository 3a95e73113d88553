//! Segments of the peer, TCP MD5 signatures (RFC 2385; one key for all), and the script of expected
//! events.

use std::net::IpAddr;
use std::os::fd::AsFd;

use etherparse::{
    Ipv6Header, NetSlice, PacketBuilder, SlicedPacket, TcpHeader, TcpOptionElement, TcpSlice,
    TransportSlice,
};

use crate::socket::set_option;
use crate::tap::{ETHERNET_HEADER, Frame};

/// TCP segment sent by the kernel.
#[derive(Debug)]
pub(crate) struct Segment {
    pub header: TcpHeader,
    pub payload: Vec<u8>,
    /// True if the checksum was left to the device.
    pub offloaded: bool,
    /// True if the segment carries a signature.
    pub signed: bool,
    /// Defect of the link header, length, checksum or signature.
    pub fault: Option<String>,
}

impl Segment {
    /// Parses a frame; `None` if it is not TCP.
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

    /// Returns the sender's timestamp, if the option is in use.
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
            let (actual, expected) = (header.header_checksum, header.calc_header_checksum());
            if actual != expected {
                return Some(format!("IPv4 checksum {actual:04x}, not {expected:04x}"));
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
    let (actual, expected) = (tcp.checksum(), checksum.expect("a length that has one"));
    // Zero has two representations, and the kernel may use the other one.
    (actual % 0xffff != expected % 0xffff)
        .then(|| format!("TCP checksum {actual:04x}, not {expected:04x}"))
}

/// Inserts an empty destination options header between a frame's IPv6 header and its segment.
pub(crate) fn insert_destination_options(frame: &mut Vec<u8>) {
    const IPV6: usize = 14;
    const DESTINATION_OPTIONS: u8 = 60;
    const PAD_4: [u8; 6] = [1, 4, 0, 0, 0, 0];
    let tcp = std::mem::replace(&mut frame[IPV6 + 6], DESTINATION_OPTIONS);
    let length = u16::from_be_bytes([frame[IPV6 + 4], frame[IPV6 + 5]]) + 8;
    frame[IPV6 + 4..IPV6 + 6].copy_from_slice(&length.to_be_bytes());
    let header = [[tcp, 0].as_slice(), &PAD_4].concat();
    let offset = IPV6 + Ipv6Header::LEN;
    frame.splice(offset..offset, header);
}

/// Builds a frame with a TCP segment, including lengths and checksums.
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

/// Start of the option before the digest: two NOPs, kind, length.
const SIGNATURE_OPTION: [u8; 4] = [1, 1, 19, 18];
const DIGEST_LENGTH: usize = 16;

/// Bytes of the MSS that the signature option takes.
pub(crate) const SIGNATURE_LENGTH: u16 = (SIGNATURE_OPTION.len() + DIGEST_LENGTH) as u16;

/// Makes the kernel sign its segments to a peer, and reject unsigned ones.
pub(crate) fn require_signature(socket: &impl AsFd, peer: IpAddr) {
    const ADDRESS_STORAGE: usize = 128;
    const KEY_STORAGE: usize = 80;
    // struct tcp_md5sig: a sockaddr_storage, flags, prefix, key's length, device, key.
    let (family, offset, octets) = match peer {
        IpAddr::V4(address) => (libc::AF_INET, 4, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, 8, address.octets().to_vec()),
    };
    let mut value = vec![0; ADDRESS_STORAGE + 8 + KEY_STORAGE];
    value[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    value[offset..offset + octets.len()].copy_from_slice(&octets);
    value[ADDRESS_STORAGE + 2..][..2].copy_from_slice(&(KEY.len() as u16).to_ne_bytes());
    value[ADDRESS_STORAGE + 8..][..KEY.len()].copy_from_slice(KEY);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG, &value);
}

/// Adds the signature of a segment to its options.
pub(crate) fn sign(addresses: (IpAddr, IpAddr), header: &mut TcpHeader, payload: &[u8]) {
    let options = header.options.as_slice().to_vec();
    let signed = |digest| [&options[..], &SIGNATURE_OPTION, digest].concat();
    // The signature covers the header's length.
    let room = signed(&[0; DIGEST_LENGTH]);
    header.set_options_raw(&room).expect("the options fit");
    let digest = digest(addresses, header, payload);
    let options = signed(&digest);
    header.set_options_raw(&options).expect("the options fit");
}

/// Returns whether a segment's signature is correct; `None` without a signature.
pub(crate) fn has_right_signature(
    addresses: (IpAddr, IpAddr),
    header: &TcpHeader,
    payload: &[u8],
) -> Option<bool> {
    let options = header.options.as_slice();
    let offset = options
        .windows(SIGNATURE_OPTION.len())
        .position(|w| w == SIGNATURE_OPTION)?;
    let actual = options
        .get(offset + SIGNATURE_OPTION.len()..)?
        .get(..DIGEST_LENGTH)?;
    Some(actual == digest(addresses, header, payload))
}

fn digest((from, to): (IpAddr, IpAddr), header: &TcpHeader, payload: &[u8]) -> [u8; DIGEST_LENGTH] {
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
    let without_checksum = TcpHeader {
        checksum: 0,
        ..header.clone()
    };
    text.extend(&without_checksum.to_bytes()[..TcpHeader::MIN_LEN]);
    text.extend(payload);
    text.extend(KEY);
    md5::compute(text).0
}

/// Expected and observed events on the wire, side by side.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Variant of the test, printed on failure.
    variant: String,
    expected: Vec<String>,
    seen: Vec<String>,
}

impl Script {
    pub fn new(variant: String) -> Self {
        Self {
            variant,
            ..Self::default()
        }
    }

    /// Records an action of the test itself.
    pub fn note(&mut self, event: &str) {
        self.expected.push(event.to_owned());
        self.seen.push(event.to_owned());
    }

    /// Records an expected and an observed event, and fails if they differ.
    pub fn compare(&mut self, expected: &str, seen: &str) {
        self.expected.push(expected.to_owned());
        self.seen.push(seen.to_owned());
        if expected != seen {
            self.fail("the wire differs from the script");
        }
    }

    pub fn fail(&self, reason: &str) -> ! {
        panic!(
            "{reason}\n  expected  {}\n  seen      {}\n  {}",
            self.expected.join(" "),
            self.seen.join(" "),
            self.variant
        )
    }
}

/// Parses `1:101` into two positions in the stream.
pub(crate) fn range(text: &str) -> (u32, u32) {
    text.split_once(':')
        .and_then(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?)))
        .unwrap_or_else(|| panic!("invalid range {text:?}: expected START:END, as in 1:101"))
}

/// Returns the stream's bytes between two positions. No two ranges look alike, so that a copy from
/// the wrong offset is detected.
pub(crate) fn content(start: u32, end: u32) -> Vec<u8> {
    (start..end)
        .map(|position| (position.wrapping_mul(0x9e37_79b1) >> 24) as u8)
        .collect()
}
