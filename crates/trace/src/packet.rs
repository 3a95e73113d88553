//! TCP segments, fingerprints, and sequence numbers without wrap.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use foldhash::fast::FixedState;
use ipnet::IpNet;

/// A TCP segment in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// The packet's number in the file, from 1; packets without TCP count as well.
    pub number: u64,
    /// Capture time, in nanoseconds since 1970.
    pub at_ns: i64,
    /// The capturing interface, if the file names it. Equal numbers are one interface.
    pub interface: u32,
    /// Source address and port.
    pub from: Endpoint,
    /// Destination address and port.
    pub to: Endpoint,
    /// Wire length in bytes, link header included.
    pub frame_len: u32,
    /// IP and TCP headers together in bytes.
    pub header_len: u16,
    /// Bytes of payload by the IP header, whether or not they were captured.
    pub payload_len: u32,
    /// Sequence number of the first byte of payload, or of SYN or FIN.
    pub seq: u32,
    /// Acknowledgement number, if the ACK flag is set.
    pub ack: Option<u32>,
    /// SYN, FIN, RST, PSH.
    pub flags: Flags,
    /// The window field, not scaled.
    pub window: u16,
    /// IPv4 identification; `None` for IPv6.
    pub ip_id: Option<u16>,
    /// The timestamps option (RFC 7323).
    pub timestamps: Option<Timestamps>,
    /// The SACK option (RFC 2018, 2883), unchanged.
    pub sack: SackBlocks,
    /// Maximum segment size of a SYN, in bytes.
    pub mss: Option<u16>,
    /// Window scale of a SYN (RFC 7323).
    pub window_scale: Option<u8>,
}

impl Packet {
    /// Whether its IP identification distinguishes it from other packets of its connection. 0 does
    /// not (RFC 6864, section 4.1).
    #[inline]
    pub(crate) fn has_ip_id(&self) -> bool {
        self.ip_id.is_some_and(|id| id != 0)
    }

    /// Whether its first SACK block reports a duplicate: it is below the ACK, or within the second
    /// block (RFC 2883, section 4).
    pub(crate) fn reports_duplicate(&self) -> bool {
        let is_before = |one: u32, other: u32| (one.wrapping_sub(other) as i32) <= 0;
        match (self.sack.as_slice(), self.ack) {
            ([first, rest @ ..], Some(ack)) => {
                let is_within = |second: &(u32, u32)| {
                    is_before(second.0, first.0) && is_before(first.1, second.1)
                };
                is_before(first.1, ack) || rest.first().is_some_and(is_within)
            }
            _ => false,
        }
    }
}

/// Address and port, IPv4 as `::ffff:a.b.c.d`. The same address in an IPv6 header belongs to another
/// connection: its first byte is `MAPPED_IN_IPV6` here.
#[derive(Clone, Copy, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// In network order.
    pub address: [u8; 16],
    /// The TCP port.
    pub port: u16,
}

/// The flags of a segment that the analysis uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// Opens a connection; takes one sequence number.
    pub syn: bool,
    /// Ends one direction; takes one sequence number.
    pub fin: bool,
    /// Resets the connection.
    pub rst: bool,
    /// The sender had no more data at that time.
    pub psh: bool,
}

/// The timestamps option (RFC 7323).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timestamps {
    /// TSval, the sender's clock.
    pub value: u32,
    /// TSecr, the peer's clock as last seen.
    pub echo: u32,
}

/// Up to four SACK blocks in wire order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlocks {
    blocks: [(u32, u32); 4],
    count: u8,
}

impl SackBlocks {
    /// Adds a block by its left and right edge. A fifth block does not fit into a TCP header and is
    /// ignored.
    pub fn push(&mut self, left: u32, right: u32) {
        if let Some(slot) = self.blocks.get_mut(usize::from(self.count)) {
            *slot = (left, right);
            self.count += 1;
        }
    }

    /// The blocks in order.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.count)]
    }
}

impl PartialEq for Endpoint {
    /// Compares ports first, which usually differ, and addresses as numbers.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let number = |end: &Self| u128::from_ne_bytes(end.address);
        self.port == other.port && number(self) == number(other)
    }
}

impl Hash for Endpoint {
    /// Hashes two numbers, which is faster than hashing bytes.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(u128::from_ne_bytes(self.address));
        state.write_u16(self.port);
    }
}

/// First byte of an IPv4-mapped address from an IPv6 header, instead of 0. Otherwise it starts
/// multicast addresses, which TCP does not use.
const MAPPED_IN_IPV6: u8 = 0xff;

/// Whether an address is of `::ffff:0:0/96`, apart from its first byte.
#[inline]
fn is_mapped(address: u128) -> bool {
    address << 8 >> 40 == 0xffff
}

/// An address of an IPv6 header, as in [`Endpoint::address`].
#[inline]
pub(crate) fn ipv6_address(mut address: [u8; 16]) -> [u8; 16] {
    if address[0] == 0 && is_mapped(u128::from_be_bytes(address)) {
        address[0] = MAPPED_IN_IPV6;
    }
    address
}

impl Endpoint {
    /// Whether a network contains its address. IPv4-mapped addresses and networks are equal to
    /// those of IPv4.
    #[must_use]
    pub fn is_in(&self, network: &IpNet) -> bool {
        match (SocketAddr::from(*self).ip(), network) {
            (IpAddr::V4(ip), IpNet::V6(net)) => {
                net.prefix_len() >= 96 && net.contains(&ip.to_ipv6_mapped())
            }
            (IpAddr::V6(ip), IpNet::V4(net)) => {
                ip.to_ipv4_mapped().is_some_and(|ip| net.contains(&ip))
            }
            (ip, network) => network.contains(&ip),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        let v6 = match address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        Self {
            address: v6.octets(),
            port: address.port(),
        }
    }
}

impl From<Endpoint> for SocketAddr {
    fn from(endpoint: Endpoint) -> Self {
        let mut address = endpoint.address;
        if address[0] == MAPPED_IN_IPV6 && is_mapped(u128::from_be_bytes(address)) {
            address[0] = 0;
            return Self::new(Ipv6Addr::from(address).into(), endpoint.port);
        }
        let address = IpAddr::V6(Ipv6Addr::from(address)).to_canonical();
        Self::new(address, endpoint.port)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::from(*self).fmt(f)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Initial sequence number of a stream. Positions count from it in 64 bits: the SYN is at 0, the
/// first byte of payload at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbering {
    initial: u32,
}

/// Maximum distance of two bytes in transit, because no window is larger (RFC 7323, section 2.3).
pub(crate) const MAX_WINDOW: i64 = 1 << 30;

impl Numbering {
    pub(crate) fn new(initial: u32) -> Self {
        Self { initial }
    }

    pub(crate) fn initial(self) -> u32 {
        self.initial
    }

    /// The sequence number of a position.
    pub(crate) fn number(self, position: i64) -> u32 {
        self.initial.wrapping_add(position as u32)
    }

    /// The position of a sequence number closest to `near`.
    #[inline]
    pub(crate) fn position(self, near: i64, number: u32) -> i64 {
        let distance = number.wrapping_sub(self.number(near)) as i32;
        near.wrapping_add(i64::from(distance))
    }
}

/// Hash of all header fields that the network leaves unchanged. Addresses and ports are excluded,
/// because NAT changes them.
pub(crate) fn fingerprint(packet: &Packet) -> u64 {
    let flags = packet.flags;
    let flags = u64::from(flags.syn)
        | u64::from(flags.fin) << 1
        | u64::from(flags.rst) << 2
        | u64::from(flags.psh) << 3
        | u64::from(packet.ack.is_some()) << 4;
    let words = [
        u64::from(packet.seq) << 32 | u64::from(packet.ack.unwrap_or_default()),
        u64::from(packet.payload_len) << 32
            | u64::from(packet.window) << 16
            | u64::from(packet.ip_id.unwrap_or_default()),
        packet.timestamps.map_or(0, |timestamps| {
            u64::from(timestamps.value) << 32 | u64::from(timestamps.echo)
        }),
        flags,
    ];
    let mut hasher = FixedState::with_seed(1).build_hasher();
    for word in words {
        hasher.write_u64(word);
    }
    for block in packet.sack.as_slice() {
        block.hash(&mut hasher);
    }
    hasher.finish() | 1
}

/// A hash of addresses and ports, equal for both directions of a connection.
#[inline]
pub(crate) fn flow_hash(packet: &Packet) -> u32 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let number = |end: &Endpoint| {
        let address = u128::from_ne_bytes(end.address);
        let halves = (address >> 64) as u64 ^ (address as u64).rotate_left(32);
        (halves ^ u64::from(end.port)).wrapping_mul(MIX)
    };
    let both = number(&packet.from).wrapping_add(number(&packet.to));
    (both.wrapping_mul(MIX) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifth_sack_block_is_ignored() {
        let mut sack = SackBlocks::default();
        for i in 0..5 {
            sack.push(i, i + 1);
        }
        assert_eq!(sack.as_slice(), [(0, 1), (1, 2), (2, 3), (3, 4)]);
    }

    #[test]
    fn mapped_address_in_ipv6_header_differs_from_ipv4() {
        let v4 = Endpoint::from("192.0.2.1:80".parse::<SocketAddr>().unwrap());
        let mapped = Endpoint {
            address: ipv6_address(v4.address),
            ..v4
        };
        assert_ne!(v4, mapped);
        assert_eq!(mapped.to_string(), "[::ffff:192.0.2.1]:80");
        for (network, contains) in [
            ("192.0.2.0/24", [true, true]),
            ("::ffff:192.0.2.0/120", [true, true]),
            ("::ffff:192.0.3.0/120", [false, false]),
            ("198.51.100.0/24", [false, false]),
            ("::/0", [false, true]),
            ("0.0.0.0/0", [true, true]),
        ] {
            let network = network.parse().unwrap();
            assert_eq!(
                [v4, mapped].map(|end| end.is_in(&network)),
                contains,
                "{network}"
            );
        }
    }

    #[test]
    fn endpoint_displays_its_socket_address() {
        for text in ["192.0.2.1:80", "[2001:db8::1]:443"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Endpoint::from(address).to_string(), text);
        }
    }

    #[test]
    fn positions_continue_across_sequence_wrap() {
        let numbering = Numbering::new(u32::MAX - 1);
        assert_eq!(numbering.position(0, u32::MAX), 1);
        assert_eq!(numbering.position(1, 9), 11);
        assert_eq!(numbering.number(11), 9);
    }

    #[test]
    fn number_before_wrap_is_an_old_position() {
        let numbering = Numbering::new(0);
        let near = 3 * (1 << 32) + 10;
        assert_eq!(numbering.position(near, u32::MAX), near - 11);
        assert_eq!(numbering.position(near, 20), near + 10);
    }
}
