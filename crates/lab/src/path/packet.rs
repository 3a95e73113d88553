//! Parses the headers of a packet.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::queue::Endpoints;

const ETHERNET: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const IPV6_HEADER: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// Returns true if losses and disorder apply to a frame: an IP packet that is not link maintenance.
pub(crate) fn is_impairable(frame: &[u8]) -> bool {
    let Some((header, packet)) = frame.split_at_checked(ETHERNET) else {
        return false;
    };
    header.ends_with(&IPV4) || (header.ends_with(&IPV6) && !is_link_maintenance(packet))
}

/// Returns true if an IPv6 packet maintains the link: to a link-local multicast group (ff02::/16),
/// or router or neighbour discovery (ICMPv6 types 133 to 137), which may be unicast.
fn is_link_maintenance(packet: &[u8]) -> bool {
    let is_link_multicast = packet.get(24..26) == Some(&[0xff, 0x02]);
    let discovery = packet.get(6) == Some(&ICMPV6)
        && packet
            .get(IPV6_HEADER)
            .is_some_and(|kind| (133..=137).contains(kind));
    is_link_multicast || discovery
}

/// Returns the source and destination port of a TCP or UDP packet. `None` for a later fragment, or
/// after IPv6 extension headers.
pub(crate) fn ports(frame: &[u8]) -> Option<[u16; 2]> {
    let (protocol, transport) = transport(frame)?;
    let &[from, of_from, to, of_to] = transport.first_chunk()?;
    [TCP, UDP]
        .contains(&protocol)
        .then(|| [[from, of_from], [to, of_to]].map(u16::from_be_bytes))
}

/// Returns IP's protocol number and the bytes after IP's header. `None` for a later fragment.
fn transport(frame: &[u8]) -> Option<(u8, &[u8])> {
    let (header, packet) = frame.split_at_checked(ETHERNET)?;
    if header.ends_with(&IPV4) {
        let length = usize::from(packet.first()? & 0x0f) * 4;
        let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]);
        if fragment & 0x1fff != 0 {
            return None;
        }
        Some((*packet.get(9)?, packet.get(length..)?))
    } else if header.ends_with(&IPV6) {
        Some((*packet.get(6)?, packet.get(IPV6_HEADER..)?))
    } else {
        None
    }
}

/// Returns the endpoints of an IP packet, with port 0 for other protocols than TCP and UDP.
pub(crate) fn endpoints(frame: &[u8]) -> Option<Endpoints> {
    let (protocol, _) = transport(frame)?;
    let (header, packet) = frame.split_at_checked(ETHERNET)?;
    let [source, destination] = if header.ends_with(&IPV4) {
        let address = |at: usize| packet.get(at..)?.first_chunk::<4>().copied();
        [address(12)?, address(16)?].map(IpAddr::from)
    } else {
        let address = |at: usize| packet.get(at..)?.first_chunk::<16>().copied();
        [address(8)?, address(24)?].map(IpAddr::from)
    };
    let [from, to] = ports(frame).unwrap_or_default();
    Some(Endpoints {
        protocol,
        source: SocketAddr::new(source, from),
        destination: SocketAddr::new(destination, to),
    })
}

/// The sequence number, the flags and the bytes of payload of a TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub seq: u32,
    pub flags: u8,
    pub payload: u32,
}

/// Parses a TCP segment; the values are 0 for other packets.
pub(crate) fn segment(frame: &[u8]) -> Segment {
    let parsed = || {
        let (_, bytes) = transport(frame).filter(|(protocol, _)| *protocol == TCP)?;
        // Short frames have padding after the IP packet.
        let packet = &frame[ETHERNET..];
        let length = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
        let ip_bytes = match frame[..ETHERNET].ends_with(&IPV4) {
            true => usize::from(length(2)?),
            false => usize::from(length(4)?) + IPV6_HEADER,
        };
        let headers = packet.len() - bytes.len() + usize::from(*bytes.get(12)? >> 4) * 4;
        Some(Segment {
            seq: u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?),
            flags: *bytes.get(13)?,
            payload: ip_bytes.saturating_sub(headers) as u32,
        })
    };
    parsed().unwrap_or_default()
}

// Values by the port of a frame.

/// A value for each of some ports.
pub(crate) struct ByPort<T>(HashMap<u16, T>);

impl<T> ByPort<T> {
    /// Returns the value of a TCP or UDP frame's destination port, otherwise of its source port.
    pub fn of(&mut self, frame: &[u8]) -> Option<&mut T> {
        if self.0.is_empty() {
            return None;
        }
        let ports = ports(frame)?;
        let configured = ports.iter().rev().find(|port| self.0.contains_key(port));
        configured.and_then(|port| self.0.get_mut(port))
    }
}

impl<T> FromIterator<(u16, T)> for ByPort<T> {
    fn from_iter<I: IntoIterator<Item = (u16, T)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn frame(ethertype: [u8; 2], packet: &[u8]) -> Vec<u8> {
        [&[0; 12][..], &ethertype, packet].concat()
    }

    /// Returns a frame with a packet to a port; `protocol` is IP's protocol number.
    pub(crate) fn ipv4(protocol: u8, port: u16) -> Vec<u8> {
        let mut packet = [0; 40];
        packet[0] = 0x45;
        packet[9] = protocol;
        packet[22..24].copy_from_slice(&port.to_be_bytes());
        frame(IPV4, &packet)
    }

    fn ipv6(next_header: u8, destination: [u8; 2], kind: u8) -> Vec<u8> {
        let mut packet = [0; 60];
        packet[6] = next_header;
        packet[24..26].copy_from_slice(&destination);
        packet[40] = kind;
        frame(IPV6, &packet)
    }

    #[test]
    fn only_ip_without_link_maintenance_is_impairable() {
        assert!(is_impairable(&frame(IPV4, &[0; 40])));
        assert!(is_impairable(&ipv6(6, [0xfd, 0], 135)), "TCP over IPv6");
        assert!(is_impairable(&ipv6(ICMPV6, [0xfd, 0], 128)), "echo request");
        assert!(!is_impairable(&frame([0x08, 0x06], &[0; 28])), "ARP");
        assert!(
            !is_impairable(&ipv6(ICMPV6, [0xfd, 0], 135)),
            "unicast probe"
        );
        assert!(!is_impairable(&ipv6(0, [0xff, 2], 0)), "multicast report");
    }

    #[test]
    fn truncated_frame_is_not_impairable() {
        assert!(!is_impairable(&[]));
        assert!(!is_impairable(&[0; 13]));
        assert!(is_impairable(&frame(IPV6, &[])));
    }

    #[test]
    fn ports_are_parsed_for_tcp_and_udp_over_ipv4_and_ipv6() {
        assert_eq!(ports(&ipv4(TCP, 20_001)), Some([0, 20_001]));
        assert_eq!(ports(&ipv4(UDP, 7)), Some([0, 7]));
        assert_eq!(ports(&ipv4(1, 7)), None, "ICMP");
        let mut options = ipv4(TCP, 0);
        options[ETHERNET] = 0x46;
        options[ETHERNET + 24..ETHERNET + 28].copy_from_slice(&[0, 8, 0, 9]);
        assert_eq!(ports(&options), Some([8, 9]));
        let mut six = ipv6(TCP, [0xfd, 0], 0);
        six[ETHERNET + 40..ETHERNET + 44].copy_from_slice(&[0, 80, 1, 187]);
        assert_eq!(ports(&six), Some([80, 443]));
    }

    #[test]
    fn packet_without_readable_ports_has_none() {
        let mut fragment = ipv4(TCP, 20_001);
        fragment[ETHERNET + 7] = 1;
        assert_eq!(ports(&fragment), None);
        let whole = ipv4(TCP, 20_001);
        for bytes in 0..ETHERNET + 24 {
            assert_eq!(ports(&whole[..bytes]), None, "{bytes} bytes");
        }
        assert_eq!(ports(&frame([0x08, 0x06], &[0; 28])), None);
    }
}
