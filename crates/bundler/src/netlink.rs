//! What the kernel says of its network devices, by rtnetlink(7).

use std::io;

use netlink_packet_core::{
    DecodeError, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::Namespace;
use crate::device::{Device, LinkHeader};

/// A queueing discipline of a device.
#[derive(Debug, Clone)]
pub(crate) struct Qdisc {
    /// The device's interface index.
    pub(crate) device: u32,
    /// Such as `htb`.
    pub(crate) kind: String,
    /// It takes packets' lengths anew (`tc ... stab`).
    pub(crate) has_size_table: bool,
}

/// All devices of the calling thread's network namespace.
pub(crate) fn list_devices() -> io::Result<Vec<Device>> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    list(request, |message| match message {
        RouteNetlinkMessage::NewLink(link) => Some(device(&link)),
        _ => None,
    })
}

/// The queueing disciplines of all of them.
pub(crate) fn list_qdiscs() -> io::Result<Vec<Qdisc>> {
    let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
    list(request, |message| match message {
        RouteNetlinkMessage::NewQueueDiscipline(message) => Some(qdisc(&message)),
        _ => None,
    })
}

/// Handle and priority of each filter of a device's queueing discipline.
pub(crate) fn list_filters(device: u32, parent: u32) -> io::Result<Vec<(u32, u32)>> {
    let mut message = TcMessage::default();
    message.header.index = device.cast_signed();
    message.header.parent = TcHandle::from(parent);
    let request = RouteNetlinkMessage::GetTrafficFilter(message);
    let filters = list(request, |message| match message {
        RouteNetlinkMessage::NewTrafficFilter(TcMessage { header, .. }) => {
            Some((u32::from(header.handle), header.info >> 16))
        }
        _ => None,
    })?;
    // The kernel also names the priority that they share, with no handle.
    Ok(filters
        .into_iter()
        .filter(|(handle, _)| *handle != 0)
        .collect())
}

fn list<T>(
    request: RouteNetlinkMessage,
    read: impl Fn(RouteNetlinkMessage) -> Option<T>,
) -> io::Result<Vec<T>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&to_bytes(request), 0)?;
    let mut found = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let message =
                NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(unreadable)?;
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(found),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(inner) => found.extend(read(inner)),
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

fn device(link: &LinkMessage) -> Device {
    let name = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        });
    let flags = link.header.flags;
    Device {
        name: name.unwrap_or_default(),
        index: link.header.index,
        link_header: LinkHeader::of(link.header.link_layer_type),
        up: flags.contains(LinkFlags::Up),
        loopback: flags.contains(LinkFlags::Loopback),
        namespace: Namespace::default(),
    }
}

fn qdisc(message: &TcMessage) -> Qdisc {
    let kind = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind.clone()),
            _ => None,
        });
    Qdisc {
        device: message.header.index.cast_unsigned(),
        kind: kind.unwrap_or_default(),
        has_size_table: message
            .attributes
            .iter()
            .any(|attribute| matches!(attribute, TcAttribute::Stab(_))),
    }
}

fn unreadable(error: DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
