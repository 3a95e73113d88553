//! What the kernel says of its network devices, by rtnetlink(7).

use std::io;

use netlink_packet_core::{
    DecodeError, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::device::{Device, LinkHeader};

/// All devices of the calling thread's network namespace.
pub(crate) fn list_devices() -> io::Result<Vec<Device>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&list_request(), 0)?;
    let mut devices = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let message =
                NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(unreadable)?;
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(devices),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                    devices.push(device(&link));
                }
                _ => {}
            }
            let length = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}

fn list_request() -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_DUMP | NLM_F_REQUEST;
    let link = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(link));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    bytes
}

fn device(link: &LinkMessage) -> Device {
    let mut name = String::new();
    let mut qdisc = String::new();
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(value) => value.clone_into(&mut name),
            LinkAttribute::Qdisc(value) => value.clone_into(&mut qdisc),
            _ => {}
        }
    }
    let flags = link.header.flags;
    Device {
        name,
        index: link.header.index,
        link_header: LinkHeader::of(link.header.link_layer_type),
        qdisc,
        up: flags.contains(LinkFlags::Up),
        loopback: flags.contains(LinkFlags::Loopback),
    }
}

fn unreadable(error: DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
