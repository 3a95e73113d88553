//! The headers of a frame: from bytes to a packet.

mod tcp_ip;

use std::fmt;

use super::Filter;
use super::container::Frame;
use crate::{Endpoint, Packet};

/// Why a frame gives no packet; as wide as what it takes the place of in results, which would be
/// handled byte by byte otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Skip {
    OtherLink,
    NotIp,
    NotTcp,
    Fragment,
    Cut,
    Damaged,
    Filtered,
}

/// A packet, and what is peculiar about it.
pub(super) struct Segment {
    pub packet: Packet,
    pub options_cut: bool,
    pub first_fragment: bool,
}

/// Reads the frame that has this number in the trace.
#[inline]
pub(super) fn read(frame: &Frame, number: u64, filter: &Filter) -> Result<Segment, Skip> {
    let at_ns = frame.at_ns.unwrap_or_default();
    if !filter.takes_time(at_ns) {
        return Err(Skip::Filtered);
    }
    let whole = Slice::new(frame.bytes, frame.len);
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
    if !filter.takes_ends(&from, &to) {
        return Err(Skip::Filtered);
    }
    let fixed = tcp_ip::Fixed::new(tcp);
    let payload_len = ip.payload.len.checked_sub(fixed.header_len.into());
    let header_len = u16::try_from(ip.header_len + u32::from(fixed.header_len));
    let (Some(payload_len), Ok(header_len)) = (payload_len, header_len) else {
        return Err(Skip::Damaged);
    };
    let (options, options_cut) = fixed.options_of(ip.payload.bytes)?;
    let options = tcp_ip::Options::read(options, fixed.flags.syn);
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

/// A part of a frame: as much of it as was captured, and how long it was on the wire.
#[derive(Clone, Copy)]
struct Slice<'a> {
    pub bytes: &'a [u8],
    /// Never less than `bytes` has.
    pub len: u32,
}

impl<'a> Slice<'a> {
    /// Some programs write a length on the wire below the length captured: the larger holds.
    #[inline]
    pub fn new(bytes: &'a [u8], len: u32) -> Self {
        Self {
            bytes,
            len: len.max(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
        }
    }

    /// The first `N` bytes, and what follows them.
    #[inline]
    pub fn split<const N: usize>(self) -> Result<(&'a [u8; N], Self), Skip> {
        match self.bytes.split_first_chunk() {
            Some((head, bytes)) => {
                let len = self.len - N as u32;
                Ok((head, Self { bytes, len }))
            }
            None => Err(self.short_of(N as u32)),
        }
    }

    /// What follows the first `len` bytes.
    #[inline]
    pub fn skip(self, len: u32) -> Result<Self, Skip> {
        match self.bytes.get(len as usize..) {
            Some(bytes) => Ok(Self {
                bytes,
                len: self.len - len,
            }),
            None => Err(self.short_of(len)),
        }
    }

    /// This slice, `len` bytes long by a header of its own: what is beyond is padding, or the
    /// frame's check sequence.
    #[inline]
    pub fn limit(self, len: u32) -> Self {
        Self {
            bytes: self.bytes.get(..len as usize).unwrap_or(self.bytes),
            len,
        }
    }

    #[cold]
    fn short_of(self, len: u32) -> Skip {
        if self.len >= len {
            Skip::Cut
        } else {
            Skip::Damaged
        }
    }
}

/// A link layer, by its number in a trace (www.tcpdump.org/linktypes.html).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

const NULL: u16 = 0;
const ETHERNET: u16 = 1;
/// What raw IP was called on BSD/OS and elsewhere before it had a number of its own.
const RAW_BSD: [u16; 2] = [12, 14];
const RAW: u16 = 101;
const LOOP: u16 = 108;
const SLL: u16 = 113;
const IPV4: u16 = 228;
const IPV6: u16 = 229;
const SLL2: u16 = 276;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

/// What a frame carries.
enum Network<'a> {
    V4(Slice<'a>),
    V6(Slice<'a>),
}

impl LinkType {
    /// The link type's name, if it is one that is read.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            NULL => "BSD loopback",
            ETHERNET => "Ethernet",
            RAW => "raw IP",
            n if RAW_BSD.contains(&n) => "raw IP",
            LOOP => "OpenBSD loopback",
            SLL => "Linux cooked v1",
            IPV4 => "raw IPv4",
            IPV6 => "raw IPv6",
            SLL2 => "Linux cooked v2",
            _ => return None,
        })
    }

    pub(crate) fn is_read(self) -> bool {
        self.name().is_some()
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

/// Where a frame was captured: Linux cooked headers say it themselves, those of v1 only whether it
/// came in or went out.
#[inline]
fn interface(frame: &Frame) -> u32 {
    let said = match frame.link.0 {
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
    said.unwrap_or(frame.interface)
}

/// The IP packet within a frame.
#[inline]
fn network(link: LinkType, frame: Slice) -> Result<Network, Skip> {
    match link.0 {
        ETHERNET => {
            let (header, rest) = frame.split::<14>()?;
            let [.., high, low] = *header;
            tagged(u16::from_be_bytes([high, low]), rest)
        }
        SLL => {
            let (header, rest) = frame.split::<16>()?;
            let [.., high, low] = *header;
            tagged(u16::from_be_bytes([high, low]), rest)
        }
        SLL2 => {
            let (header, rest) = frame.split::<20>()?;
            let [high, low, ..] = *header;
            tagged(u16::from_be_bytes([high, low]), rest)
        }
        NULL | LOOP => {
            let (family, rest) = frame.split::<4>()?;
            loopback(u32::from_be_bytes(*family), rest)
        }
        IPV4 => Ok(Network::V4(frame)),
        IPV6 => Ok(Network::V6(frame)),
        RAW => raw(frame),
        n if RAW_BSD.contains(&n) => raw(frame),
        _ => Err(Skip::OtherLink),
    }
}

/// Passes over VLAN tags (802.1Q, 802.1ad, and what QinQ used before it).
#[inline]
fn tagged(mut ethertype: u16, mut rest: Slice) -> Result<Network, Skip> {
    loop {
        match ethertype {
            ETHERTYPE_IPV4 => return Ok(Network::V4(rest)),
            ETHERTYPE_IPV6 => return Ok(Network::V6(rest)),
            0x8100 | 0x88a8 | 0x9100 => {
                let ([_, _, high, low], behind) = rest.split::<4>()?;
                ethertype = u16::from_be_bytes([*high, *low]);
                rest = behind;
            }
            _ => return Err(Skip::NotIp),
        }
    }
}

/// The address family is in the byte order of the host that captured, and IPv6's differs between
/// systems: Linux; NetBSD, OpenBSD; FreeBSD; macOS.
fn loopback(family: u32, rest: Slice) -> Result<Network, Skip> {
    match family.min(family.swap_bytes()) {
        2 => Ok(Network::V4(rest)),
        10 | 24 | 28 | 30 => Ok(Network::V6(rest)),
        _ => Err(Skip::NotIp),
    }
}

fn raw(packet: Slice) -> Result<Network, Skip> {
    let ([first], _) = packet.split::<1>()?;
    match first >> 4 {
        4 => Ok(Network::V4(packet)),
        6 => Ok(Network::V6(packet)),
        _ => Err(Skip::NotIp),
    }
}
