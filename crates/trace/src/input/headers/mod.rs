//! The headers of a frame: from bytes to a packet.
//!
//! Own code, because etherparse's lax slices would replace only about 120 lines: IPv4, IPv6 and
//! extension headers. They have no lengths on the wire, no truncated TCP header, and no link layers
//! other than Ethernet and Linux cooked v1.

mod tcp_ip;

use super::Filter;
use super::container::Frame;
use super::link_type::{
    ETHERNET, IPV4, IPV6, LOOP, LinkType, NULL, PPP, PPP_WITH_DIRECTION, PPPOE, RAW, RAW_BSD, SLL,
    SLL2,
};
use crate::{Endpoint, Packet};

/// Why a frame yields no packet. As wide as the pointer that it shares results with, which avoids
/// byte-wise handling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum SkipReason {
    OtherLink,
    NotIp,
    NotTcp,
    Fragment,
    Cut,
    Damaged,
    TimeRange,
    Filtered,
}

/// A packet and its anomalies.
pub(super) struct Segment {
    pub packet: Packet,
    pub options_cut: bool,
    pub first_fragment: bool,
}

/// Reads the frame with this number in the trace.
#[inline]
pub(super) fn read(frame: &Frame, number: u64, filter: &Filter) -> Result<Segment, SkipReason> {
    let at_ns = frame.at_ns.unwrap_or_default();
    if !filter.matches_time(at_ns) {
        return Err(SkipReason::Filtered);
    }
    let whole = FrameSlice::new(frame.bytes, frame.len);
    let frame_len = whole.len;
    let ip = match network(frame.link, whole)? {
        Network::V4(packet) => tcp_ip::v4(packet)?,
        Network::V6(packet) => tcp_ip::v6(packet)?,
    };
    let (tcp, _) = ip.payload.split::<{ tcp_ip::HEADER }>()?;
    let [from, to] = tcp_ip::ports(tcp);
    let from = Endpoint {
        address: ip.from,
        port: from,
    };
    let to = Endpoint {
        address: ip.to,
        port: to,
    };
    if !filter.matches_ends(&from, &to) {
        return Err(SkipReason::Filtered);
    }
    let fixed = tcp_ip::TcpHeader::new(tcp);
    let payload_len = ip.payload.len.checked_sub(fixed.header_len.into());
    let header_len = u16::try_from(ip.header_len + u32::from(fixed.header_len));
    let (Some(payload_len), Ok(header_len)) = (payload_len, header_len) else {
        return Err(SkipReason::Damaged);
    };
    let (options, options_cut) = fixed.options_of(ip.payload.bytes)?;
    let options = tcp_ip::TcpOptions::read(options, fixed.flags.syn);
    let packet = Packet {
        number,
        at_ns,
        interface: interface(frame),
        from,
        to,
        frame_len,
        header_len,
        payload_len,
        seq: fixed.seq,
        ack: fixed.ack,
        flags: fixed.flags,
        window: fixed.window,
        ip_id: ip.id,
        timestamps: options.timestamps,
        sack: options.sack,
        mss: options.mss,
        window_scale: options.window_scale,
    };
    Ok(Segment {
        packet,
        options_cut,
        first_fragment: ip.first_fragment,
    })
}

/// A part of a frame: its captured bytes and its length on the wire.
#[derive(Clone, Copy)]
struct FrameSlice<'a> {
    pub bytes: &'a [u8],
    /// At least the length of `bytes`.
    pub len: u32,
    /// Whether a header has this length, so that no inner header can exceed it. The length of a
    /// frame is rewritten by programs that truncate it.
    is_limited: bool,
}

impl<'a> FrameSlice<'a> {
    /// Some programs write a wire length below the captured length: the larger one counts.
    #[inline]
    pub fn new(bytes: &'a [u8], len: u32) -> Self {
        Self {
            bytes,
            len: len.max(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            is_limited: false,
        }
    }

    /// Splits off the first `N` bytes.
    #[inline]
    pub fn split<const N: usize>(self) -> Result<(&'a [u8; N], Self), SkipReason> {
        match self.bytes.split_first_chunk() {
            Some((head, bytes)) => {
                let len = self.len - N as u32;
                Ok((head, Self { bytes, len, ..self }))
            }
            None => Err(self.short_of(N as u32)),
        }
    }

    /// Drops the first `len` bytes.
    #[inline]
    pub fn skip(self, len: u32) -> Result<Self, SkipReason> {
        match self.bytes.get(len as usize..) {
            Some(bytes) => Ok(Self {
                bytes,
                len: self.len - len,
                ..self
            }),
            None => Err(self.short_of(len)),
        }
    }

    /// Limits the slice to `len` bytes, a header's length field. The rest is padding or the frame
    /// check sequence.
    #[inline]
    pub fn limit(self, len: u32) -> Self {
        let len = match self.is_limited {
            true => len.min(self.len),
            false => len,
        };
        Self {
            bytes: self.bytes.get(..len as usize).unwrap_or(self.bytes),
            len,
            is_limited: true,
        }
    }

    #[cold]
    fn short_of(self, len: u32) -> SkipReason {
        if self.len >= len {
            SkipReason::Cut
        } else {
            SkipReason::Damaged
        }
    }
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_PPPOE: u16 = 0x8864;

/// Payload of a frame.
enum Network<'a> {
    V4(FrameSlice<'a>),
    V6(FrameSlice<'a>),
}

/// The capturing interface. Linux cooked headers name it; v1 has only the packet's direction.
#[inline]
fn interface(frame: &Frame) -> u32 {
    let interface_index = match frame.link.0 {
        SLL => frame
            .bytes
            .first_chunk()
            .map(|kind| u16::from_be_bytes(*kind).into()),
        SLL2 => frame
            .bytes
            .get(4..)
            .and_then(<[u8]>::first_chunk)
            .map(|index| u32::from_be_bytes(*index)),
        _ => None,
    };
    interface_index.unwrap_or(frame.interface)
}

/// The IP packet within a frame.
#[inline]
fn network(link: LinkType, frame: FrameSlice) -> Result<Network, SkipReason> {
    let (header_len, ethertype_at) = match link.0 {
        ETHERNET => (14, 12),
        SLL => (16, 14),
        SLL2 => (20, 0),
        _ => return other_network(link, frame),
    };
    let rest = frame.skip(header_len)?;
    let ethertype = frame
        .bytes
        .get(ethertype_at..)
        .and_then(<[u8]>::first_chunk);
    skip_vlan_tags(u16::from_be_bytes(*ethertype.unwrap_or(&[0; 2])), rest)
}

/// The same for link layers without an EtherType.
#[inline(never)]
fn other_network(link: LinkType, frame: FrameSlice) -> Result<Network, SkipReason> {
    match link.0 {
        NULL | LOOP => {
            let (family, rest) = frame.split::<4>()?;
            loopback(u32::from_be_bytes(*family), rest)
        }
        PPPOE => pppoe(frame),
        n if PPP.contains(&n) => ppp(frame),
        n if PPP_WITH_DIRECTION.contains(&n) => ppp(frame.skip(1)?),
        IPV4 => Ok(Network::V4(frame)),
        IPV6 => Ok(Network::V6(frame)),
        RAW => raw(frame),
        n if RAW_BSD.contains(&n) => raw(frame),
        _ => Err(SkipReason::OtherLink),
    }
}

/// The payload of a PPPoE session packet (RFC 2516).
fn pppoe(packet: FrameSlice) -> Result<Network, SkipReason> {
    let ([_, code, _, _, high, low], rest) = packet.split::<6>()?;
    match code {
        0 => ppp(rest.limit(u32::from(u16::from_be_bytes([*high, *low])))),
        _ => Err(SkipReason::NotIp),
    }
}

/// The payload of a PPP frame. The framing header may be absent, and the protocol may be one byte
/// (RFC 1661, section 6.5). Cisco HDLC has an EtherType instead (RFC 1547, section 4.3.1).
fn ppp(frame: FrameSlice) -> Result<Network, SkipReason> {
    let frame = match frame.bytes {
        [0x0f | 0x8f, 0, ..] => {
            let ([_, _, high, low], rest) = frame.split::<4>()?;
            return skip_vlan_tags(u16::from_be_bytes([*high, *low]), rest);
        }
        [0xff, 0x03, ..] => frame.skip(2)?,
        _ => frame,
    };
    let ([first], rest) = frame.split::<1>()?;
    let (protocol, rest) = match first & 1 {
        // Only the last byte of the number is odd.
        0 => {
            let ([second], rest) = rest.split::<1>()?;
            (u16::from_be_bytes([*first, *second]), rest)
        }
        _ => (u16::from(*first), rest),
    };
    match protocol {
        0x21 => Ok(Network::V4(rest)),
        0x57 => Ok(Network::V6(rest)),
        _ => Err(SkipReason::NotIp),
    }
}

/// Skips VLAN tags (802.1Q, 802.1ad, and the older QinQ).
#[inline]
fn skip_vlan_tags(mut ethertype: u16, mut rest: FrameSlice) -> Result<Network, SkipReason> {
    loop {
        match ethertype {
            ETHERTYPE_IPV4 => return Ok(Network::V4(rest)),
            ETHERTYPE_IPV6 => return Ok(Network::V6(rest)),
            ETHERTYPE_PPPOE => return pppoe(rest),
            0x8100 | 0x88a8 | 0x9100 => {
                let ([_, _, high, low], after) = rest.split::<4>()?;
                ethertype = u16::from_be_bytes([*high, *low]);
                rest = after;
            }
            _ => return Err(SkipReason::NotIp),
        }
    }
}

/// The address family is in the capturing host's byte order. IPv6's number differs between systems:
/// Linux; NetBSD, OpenBSD; FreeBSD; macOS.
fn loopback(family: u32, rest: FrameSlice) -> Result<Network, SkipReason> {
    match family.min(family.swap_bytes()) {
        2 => Ok(Network::V4(rest)),
        10 | 24 | 28 | 30 => Ok(Network::V6(rest)),
        _ => Err(SkipReason::NotIp),
    }
}

fn raw(packet: FrameSlice) -> Result<Network, SkipReason> {
    let ([first], _) = packet.split::<1>()?;
    match first >> 4 {
        4 => Ok(Network::V4(packet)),
        6 => Ok(Network::V6(packet)),
        _ => Err(SkipReason::NotIp),
    }
}
