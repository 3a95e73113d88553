//! Lists of the kernel's network objects, by rtnetlink(7). Only required attributes are parsed, because
//! others, names above all, may hold any bytes.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;

use netlink_packet_core::{
    DecodeError, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcHandle, TcHeader, TcMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::host::interruption::retry;

/// Items from the kernel's messages, without messages that cannot be parsed.
#[derive(Debug)]
pub(crate) struct ListResult<T> {
    pub(crate) all: Vec<T>,
    /// Number of messages that make no sense.
    pub(crate) unreadable: usize,
}

/// A queueing discipline of a device.
#[derive(Debug, Clone)]
pub(crate) struct Qdisc {
    /// The device's interface index.
    pub(crate) device: u32,
    /// The discipline's kind, such as `htb`.
    pub(crate) kind: OsString,
    /// True if the discipline has a size table (`tc ... stab`).
    pub(crate) has_size_table: bool,
}

/// A filter of a device's queueing discipline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) handle: u32,
    pub(crate) priority: u32,
    /// The kernel's id of the filter's eBPF program, if it has one.
    pub(crate) program: Option<u32>,
}

/// The queueing disciplines of one device, or of all devices of the network namespace.
pub(crate) fn list_qdiscs(device: Option<u32>) -> io::Result<Vec<Qdisc>> {
    // The kernel heeds no device in the request.
    let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
    let mut all = list(request, libc::RTM_NEWQDISC, qdisc)?.all;
    all.retain(|qdisc| device.is_none_or(|device| qdisc.device == device));
    Ok(all)
}

/// The filters of a device's queueing discipline.
pub(crate) fn list_filters(device: u32, parent: u32) -> io::Result<Vec<Filter>> {
    let mut message = TcMessage::default();
    message.header.index = device.cast_signed();
    message.header.parent = TcHandle::from(parent);
    let request = RouteNetlinkMessage::GetTrafficFilter(message);
    let mut filters = list(request, libc::RTM_NEWTFILTER, filter)?.all;
    // The kernel also names the priority that they share, with no handle.
    filters.retain(|filter| filter.handle != 0);
    Ok(filters)
}

/// Size of the kernel's `struct tcmsg` in bytes.
const TC_HEADER: usize = 20;

/// A message's body, not read yet.
struct Body(Vec<u8>);

impl NetlinkDeserializable for Body {
    type Error = Infallible;

    fn deserialize(_: &NetlinkHeader, body: &[u8]) -> Result<Self, Infallible> {
        Ok(Self(body.to_vec()))
    }
}

pub(crate) fn list<T>(
    request: RouteNetlinkMessage,
    kind: u16,
    read: impl Fn(&[u8]) -> Result<T, DecodeError>,
) -> io::Result<ListResult<T>> {
    /// Maximum tries for a consistent list; the last one is used as it is, because later changes
    /// cause events.
    const ATTEMPTS: u32 = 5;
    let request = to_bytes(request);
    let mut attempt = 1;
    loop {
        let (listed, interrupted) = list_once(&request, kind, &read)?;
        if !interrupted || attempt == ATTEMPTS {
            return Ok(listed);
        }
        attempt += 1;
    }
}

/// Lists once; the flag is true if the list changed meanwhile and may be incomplete.
fn list_once<T>(
    request: &[u8],
    kind: u16,
    read: impl Fn(&[u8]) -> Result<T, DecodeError>,
) -> io::Result<(ListResult<T>, bool)> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    retry(|| socket.send(request, 0))?;
    let mut listed = ListResult {
        all: Vec::new(),
        unreadable: 0,
    };
    let mut interrupted = false;
    loop {
        let (bytes, _) = retry(|| socket.recv_from_full())?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let message = NetlinkMessage::<Body>::deserialize(rest).map_err(unreadable)?;
            interrupted |= message.header.flags & libc::NLM_F_DUMP_INTR as u16 != 0;
            match message.payload {
                NetlinkPayload::Done(_) => return Ok((listed, interrupted)),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(body) if message.header.message_type == kind => {
                    match read(&body.0) {
                        Ok(item) => listed.all.push(item),
                        Err(_) => listed.unreadable += 1,
                    }
                }
                _ => {}
            }
            let length = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}

fn to_bytes(request: RouteNetlinkMessage) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_DUMP | NLM_F_REQUEST;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(request));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    bytes
}

fn qdisc(body: &[u8]) -> Result<Qdisc, DecodeError> {
    let mut qdisc = Qdisc {
        device: TcHeader::parse(body)?.index.cast_unsigned(),
        kind: OsString::new(),
        has_size_table: false,
    };
    each_attribute(attributes(body, TC_HEADER), |kind, value| {
        match kind {
            libc::TCA_KIND => qdisc.kind = name(value),
            libc::TCA_STAB => qdisc.has_size_table = true,
            _ => {}
        }
        Ok(())
    })?;
    Ok(qdisc)
}

fn filter(body: &[u8]) -> Result<Filter, DecodeError> {
    /// From linux/pkt_cls.h.
    const TCA_BPF_ID: u16 = 11;
    let header = TcHeader::parse(body)?;
    let mut filter = Filter {
        handle: u32::from(header.handle),
        priority: header.info >> 16,
        program: None,
    };
    let (mut is_bpf, mut options) = (false, None);
    each_attribute(attributes(body, TC_HEADER), |kind, value| {
        match kind {
            libc::TCA_KIND => is_bpf = name(value) == "bpf",
            libc::TCA_OPTIONS => options = Some(value.to_vec()),
            _ => {}
        }
        Ok(())
    })?;
    if is_bpf {
        each_attribute(options.as_deref().unwrap_or_default(), |kind, value| {
            if kind == TCA_BPF_ID {
                filter.program = value.try_into().ok().map(u32::from_ne_bytes);
            }
            Ok(())
        })?;
    }
    Ok(filter)
}

/// The attributes of a message, which follow a header of this size in bytes.
pub(crate) fn attributes(body: &[u8], header: usize) -> &[u8] {
    body.get(header..).unwrap_or_default()
}

pub(crate) fn each_attribute(
    bytes: &[u8],
    mut read: impl FnMut(u16, &[u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    NlasIterator::new(bytes).try_for_each(|attribute| {
        let attribute = attribute?;
        read(attribute.kind(), attribute.value())
    })
}

/// A name in an attribute, up to the zero that ends it.
pub(crate) fn name(value: &[u8]) -> OsString {
    let end = value.iter().position(|byte| *byte == 0);
    OsString::from_vec(value[..end.unwrap_or(value.len())].to_vec())
}

fn unreadable(error: DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_netlink_message_is_error_without_panic() {
        assert!(qdisc(&[0; TC_HEADER - 1]).is_err() && filter(&[]).is_err());
    }
}
