//! The headers of a frame: from bytes to a packet.

mod ip;
mod link;
mod slice;
mod tcp;

use super::{Filter, container::Frame};
use crate::{Endpoint, Packet};
pub use link::LinkType;
use slice::Slice;

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
    let ip = match link::network(frame.link, whole)? {
        link::Network::V4(packet) => ip::v4(packet)?,
        link::Network::V6(packet) => ip::v6(packet)?,
    };
    let (tcp, _) = ip.payload.split::<{ tcp::HEADER }>()?;
    let [from, to] = tcp::ports(tcp);
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
    let fixed = tcp::Fixed::new(tcp);
    let payload_len = ip.payload.len.checked_sub(fixed.header_len.into());
    let header_len = u16::try_from(ip.header_len + u32::from(fixed.header_len));
    let (Some(payload_len), Ok(header_len)) = (payload_len, header_len) else {
        return Err(Skip::Damaged);
    };
    let (options, options_cut) = fixed.options_of(ip.payload.bytes)?;
    let options = tcp::Options::read(options, fixed.flags.syn);
    let packet = Packet {
        number,
        at_ns,
        interface: link::interface(frame),
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
