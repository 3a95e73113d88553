use std::fmt;

use super::{Frame, Skip, Slice};

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
pub(super) enum Network<'a> {
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
pub(super) fn interface(frame: &Frame) -> u32 {
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
pub(super) fn network(link: LinkType, frame: Slice) -> Result<Network, Skip> {
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
