//! The headers of IPv4, IPv6 and TCP.

use super::{FrameSlice, SkipReason};
use crate::packet::ipv6_address;
use crate::{Flags, SackBlocks, Timestamps};

const TCP: u8 = 6;
const V6_HEADER: u32 = 40;
const ROUTING: u8 = 43;

/// An IP packet that contains TCP.
pub(super) struct IpPacket<'a> {
    pub from: [u8; 16],
    /// The last destination of a source route.
    pub to: [u8; 16],
    pub id: Option<u16>,
    /// Options or extension headers included.
    pub header_len: u32,
    /// More fragments contain the rest of the payload.
    pub first_fragment: bool,
    pub payload: FrameSlice<'a>,
}

/// Reads IPv4 (RFC 791).
#[inline]
pub(super) fn v4(packet: FrameSlice) -> Result<IpPacket, SkipReason> {
    let (header, _) = packet.split::<20>()?;
    let &[version, _, t0, t1, i0, i1, f0, f1, _, protocol, _, _, ..] = header;
    let header_len = u32::from(version & 0xf) * 4;
    if version >> 4 != 4 || header_len < 20 {
        return Err(SkipReason::Damaged);
    }
    if protocol != TCP {
        return Err(SkipReason::NotTcp);
    }
    let fragment = u16::from_be_bytes([f0, f1]);
    if fragment & 0x1fff != 0 {
        return Err(SkipReason::Fragment);
    }
    let packet = match u32::from(u16::from_be_bytes([t0, t1])) {
        // Captured before segmentation, and too long for the field.
        0 => packet,
        total if total < header_len => return Err(SkipReason::Damaged),
        total => packet.limit(total),
    };
    let &[.., a0, a1, a2, a3, b0, b1, b2, b3] = header;
    let to = match packet.bytes.get(20..header_len as usize) {
        Some([]) | None => None,
        Some(options) => last_of_route(options),
    };
    Ok(IpPacket {
        from: mapped([a0, a1, a2, a3]),
        to: mapped(to.unwrap_or([b0, b1, b2, b3])),
        id: Some(u16::from_be_bytes([i0, i1])),
        header_len,
        first_fragment: fragment & 0x2000 != 0,
        payload: packet.skip(header_len)?,
    })
}

/// The last address of a source route that the packet has not yet travelled (RFC 791, section 3.1).
#[cold]
fn last_of_route(mut options: &[u8]) -> Option<[u8; 4]> {
    const NO_OPERATION: u8 = 1;
    const LOOSE_ROUTE: u8 = 131;
    const STRICT_ROUTE: u8 = 137;
    loop {
        options = match options {
            [NO_OPERATION, rest @ ..] => rest,
            [LOOSE_ROUTE | STRICT_ROUTE, len, pointer, ..] => {
                let route = options.get(3..usize::from(*len))?;
                return (pointer <= len)
                    .then(|| route.last_chunk().copied())
                    .flatten();
            }
            [1..=255, len @ 2..=255, ..] => options.get(usize::from(*len)..)?,
            _ => return None,
        }
    }
}

/// `::ffff:a.b.c.d`, built as a number because sixteen single bytes would be copied one by one.
#[inline]
fn mapped(address: [u8; 4]) -> [u8; 16] {
    (0xffff_0000_0000 | u128::from(u32::from_be_bytes(address))).to_be_bytes()
}

/// Reads IPv6 (RFC 8200).
#[inline]
pub(super) fn v6(packet: FrameSlice) -> Result<IpPacket, SkipReason> {
    let (fixed, rest) = packet.split::<8>()?;
    let (from, rest) = rest.split::<16>()?;
    let (to, rest) = rest.split::<16>()?;
    let &[version, _, _, _, l0, l1, protocol, _] = fixed;
    if version >> 4 != 6 {
        return Err(SkipReason::Damaged);
    }
    let rest = match u32::from(u16::from_be_bytes([l0, l1])) {
        // A jumbogram, or captured before segmentation, and too long for the field.
        0 => rest,
        len => rest.limit(len),
    };
    let before = rest.len;
    let mut to = *to;
    let (first_fragment, payload) = extensions(protocol, rest, &mut to)?;
    Ok(IpPacket {
        from: ipv6_address(*from),
        to: ipv6_address(to),
        id: None,
        header_len: V6_HEADER + (before - payload.len),
        first_fragment,
        payload,
    })
}

/// The last destination of a routing header with segments left: the last address (RFC 2460, section
/// 4.4; RFC 6275, section 6.4), or the first one of a segment list (RFC 8754, section 2).
#[cold]
fn last_of_routing_header(header: &[u8]) -> Option<[u8; 16]> {
    match *header {
        [_, _, 0 | 2, 1..=255, _, _, _, _, ref addresses @ ..] => addresses.last_chunk().copied(),
        [_, _, 4, 1..=255, _, _, _, _, ref segments @ ..] => segments.first_chunk().copied(),
        _ => None,
    }
}

/// Skips the extension headers. Returns whether more fragments follow, and the payload. Sets `to` to
/// the last destination of a routing header.
#[inline]
fn extensions<'a>(
    mut protocol: u8,
    mut rest: FrameSlice<'a>,
    to: &mut [u8; 16],
) -> Result<(bool, FrameSlice<'a>), SkipReason> {
    let mut first_fragment = false;
    loop {
        match protocol {
            TCP => return Ok((first_fragment, rest)),
            // Hop-by-hop, destination options, mobility, host identity, shim6.
            0 | ROUTING | 60 | 135 | 139 | 140 => {
                let ([next, len], _) = rest.split::<2>()?;
                let header = rest.bytes;
                rest = rest.skip((u32::from(*len) + 1) * 8)?;
                if protocol == ROUTING {
                    let header = &header[..header.len() - rest.bytes.len()];
                    *to = last_of_routing_header(header).unwrap_or(*to);
                }
                protocol = *next;
            }
            // Authentication, whose length has another unit (RFC 4302).
            51 => {
                let ([next, len], _) = rest.split::<2>()?;
                rest = rest.skip((u32::from(*len) + 2) * 4)?;
                protocol = *next;
            }
            44 => {
                let ([next, _, o0, o1, ..], after) = rest.split::<8>()?;
                let fragment = u16::from_be_bytes([*o0, *o1]);
                if fragment & 0xfff8 != 0 {
                    return Err(match *next {
                        TCP => SkipReason::Fragment,
                        _ => SkipReason::NotTcp,
                    });
                }
                first_fragment |= fragment & 1 != 0;
                rest = after;
                protocol = *next;
            }
            _ => return Err(SkipReason::NotTcp),
        }
    }
}

/// Bytes of the TCP header without options.
pub(super) const HEADER: usize = 20;
/// A larger window scale counts as this (RFC 7323, section 2.3).
const MAX_WINDOW_SCALE: u8 = 14;

/// The TCP header without its options (RFC 9293).
pub(super) struct TcpHeader {
    pub seq: u32,
    pub ack: Option<u32>,
    pub flags: Flags,
    pub window: u16,
    /// Options included, in bytes.
    pub header_len: u16,
}

#[inline]
pub(super) fn ports(header: &[u8; HEADER]) -> [u16; 2] {
    let &[f0, f1, t0, t1, ..] = header;
    [u16::from_be_bytes([f0, f1]), u16::from_be_bytes([t0, t1])]
}

impl TcpHeader {
    #[inline]
    pub fn new(header: &[u8; HEADER]) -> Self {
        let &[
            _,
            _,
            _,
            _,
            s0,
            s1,
            s2,
            s3,
            a0,
            a1,
            a2,
            a3,
            offset,
            bits,
            w0,
            w1,
            ..,
        ] = header;
        let bit = |mask| bits & mask != 0;
        Self {
            seq: u32::from_be_bytes([s0, s1, s2, s3]),
            ack: bit(0x10).then(|| u32::from_be_bytes([a0, a1, a2, a3])),
            flags: Flags {
                syn: bit(0x02),
                fin: bit(0x01),
                rst: bit(0x04),
                psh: bit(0x08),
            },
            window: u16::from_be_bytes([w0, w1]),
            header_len: u16::from(offset >> 4) * 4,
        }
    }

    /// The captured options of the segment that starts with this header, and whether they were
    /// truncated.
    #[inline]
    pub fn options_of<'a>(&self, segment: &'a [u8]) -> Result<(&'a [u8], bool), SkipReason> {
        let len = usize::from(self.header_len);
        if len < HEADER {
            return Err(SkipReason::Damaged);
        }
        let (end, cut) = match segment.len() {
            captured if captured < len => (captured, true),
            _ => (len, false),
        };
        Ok((segment.get(HEADER..end).unwrap_or_default(), cut))
    }
}

/// The TCP options that the analysis uses.
#[derive(Default)]
pub(super) struct TcpOptions {
    pub timestamps: Option<Timestamps>,
    pub sack: SackBlocks,
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
}

impl TcpOptions {
    /// Reads options up to the end or the first malformed one, as receivers do.
    #[inline]
    pub fn read(mut rest: &[u8], syn: bool) -> Self {
        let mut options = Self::default();
        // The layout of nearly all segments (RFC 7323, appendix A).
        if let [1, 1, 8, 10, timestamps @ ..] = rest
            && let Some((timestamps, after)) = timestamps.split_first_chunk()
        {
            options.timestamps = Some(Timestamps::read(timestamps));
            rest = after;
        }
        loop {
            rest = match rest {
                [1, after @ ..] => after,
                [0, ..] | [] | [_] => return options,
                [kind, len, after @ ..] => {
                    let body = usize::from(*len).checked_sub(2);
                    let Some((body, after)) = body.and_then(|body| after.split_at_checked(body))
                    else {
                        return options;
                    };
                    options.add(*kind, body, syn);
                    after
                }
            }
        }
    }

    #[inline]
    fn add(&mut self, kind: u8, body: &[u8], syn: bool) {
        match (kind, body) {
            (2, &[a, b]) if syn => self.mss = Some(u16::from_be_bytes([a, b])),
            (3, &[scale]) if syn => self.window_scale = Some(scale.min(MAX_WINDOW_SCALE)),
            (5, blocks) => {
                self.sack = SackBlocks::default();
                let (blocks, _) = blocks.as_chunks::<8>();
                for &[a, b, c, d, e, f, g, h] in blocks {
                    let left = u32::from_be_bytes([a, b, c, d]);
                    self.sack.push(left, u32::from_be_bytes([e, f, g, h]));
                }
            }
            (8, body) => {
                if let Ok(body) = body.try_into() {
                    self.timestamps = Some(Timestamps::read(body));
                }
            }
            _ => {}
        }
    }
}

impl Timestamps {
    #[inline]
    fn read(&[a, b, c, d, e, f, g, h]: &[u8; 8]) -> Self {
        Self {
            value: u32::from_be_bytes([a, b, c, d]),
            echo: u32::from_be_bytes([e, f, g, h]),
        }
    }
}
