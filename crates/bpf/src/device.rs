//! Network devices: the kernel's list, and which of them are meant.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;

use netlink_packet_core::DecodeError;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    LinkFlags, LinkHeader as LinkMessageHeader, LinkLayerType, LinkMessage,
};
use pillion_stats::names::escaped;

use crate::netlink::{self, ListResult, Qdisc, attributes, each_attribute, name};
use crate::{Error, Namespace};

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The device's name: bytes, in no encoding.
    pub name: OsString,
    /// The device's other names (`altname` in `ip link`).
    pub other_names: Vec<OsString>,
    /// The device's interface index.
    pub index: u32,
    /// The link header of the device's packets; `None` if it is unknown.
    pub link_header: Option<LinkHeader>,
    /// True if the device is switched on.
    pub up: bool,
    /// True if it is the namespace's loopback device.
    pub loopback: bool,
    /// True if the device is part of another one, such as a bridge.
    pub is_port: bool,
    /// The network namespace that the device is in.
    pub namespace: Namespace,
}

/// The link header of a device's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkHeader {
    /// Packets start with an Ethernet header and optional VLAN tags.
    Ethernet,
    /// Packets start with the IP header: tun, WireGuard, PPP, tunnels of IP in IP.
    Absent,
}

impl LinkHeader {
    /// The link header of a device type (`if_arp.h`); `None` if unknown.
    pub(crate) fn from_link_layer(kind: LinkLayerType) -> Option<Self> {
        match kind {
            LinkLayerType::Ether | LinkLayerType::Loopback => Some(Self::Ethernet),
            LinkLayerType::None
            | LinkLayerType::Rawip
            | LinkLayerType::Ppp
            | LinkLayerType::Tunnel
            | LinkLayerType::Tunnel6
            | LinkLayerType::Sit
            | LinkLayerType::Ipgre
            | LinkLayerType::Ip6gre => Some(Self::Absent),
            _ => None,
        }
    }
}

impl Device {
    /// True if both are the same device, even with another name or state.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.index == other.index && self.namespace == other.namespace
    }

    /// True if the device is selected when none is named: it is up, not loopback, and its link header
    /// is known.
    pub(crate) fn is_usable(&self) -> bool {
        self.up && !self.loopback && self.link_header.is_some()
    }

    /// True if the device has one of these names, or, where none is named, is usable.
    pub(crate) fn is_selected(&self, names: &[impl AsRef<OsStr>]) -> bool {
        match names {
            [] => self.is_usable(),
            names => names.iter().any(|name| self.has_name(name.as_ref())),
        }
    }

    /// True if the device has this name. An address may have a label of its own, such as `eth0:1`,
    /// which names its device, too.
    pub(crate) fn has_name(&self, name: &OsStr) -> bool {
        let device = name.as_bytes().split(|byte| *byte == b':').next();
        let device = OsStr::from_bytes(device.unwrap_or_default());
        let mut names = [&self.name].into_iter().chain(&self.other_names);
        names.any(|own| own == name || own == device)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&escaped(&self.name))?;
        match self.namespace.name() {
            None => Ok(()),
            Some(namespace) => write!(f, " in {namespace}"),
        }
    }
}

impl Device {
    /// Finds devices of this network namespace by name, or, where none is named, all that
    /// are up but loopback.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] for a name that does not exist, [`Error::NoDevice`]
    /// when none is named and none is up; [`Error::System`].
    pub fn select(names: &[impl AsRef<OsStr>]) -> Result<Vec<Self>, Error> {
        select(Self::list()?, names)
    }

    /// Returns the devices that lack the queueing discipline fq, which sends packets at their departure
    /// times (EDT). Devices whose disciplines cannot be listed are left out.
    pub fn without_fq<'a>(devices: impl Iterator<Item = &'a Self>) -> Vec<&'a Self> {
        // Every list has all devices of a namespace.
        let mut listed: Vec<(&Namespace, Option<Vec<Qdisc>>)> = Vec::new();
        let lacks_fq = |device: &&'a Self| {
            let known = listed.iter().position(|it| *it.0 == device.namespace);
            let index = known.unwrap_or_else(|| {
                let qdiscs = device.namespace.enter(|| netlink::list_qdiscs(None));
                let qdiscs = qdiscs.ok().and_then(Result::ok);
                listed.push((&device.namespace, qdiscs));
                listed.len() - 1
            });
            listed[index].1.as_ref().is_some_and(|qdiscs| {
                let mut of_device = qdiscs.iter().filter(|it| it.device == device.index);
                !of_device.any(|it| it.kind == "fq")
            })
        };
        devices.filter(lacks_fq).collect()
    }

    /// All devices of this network namespace whose messages can be parsed.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn list() -> Result<Vec<Self>, Error> {
        Self::list_in(&Namespace::default()).map(|listed| listed.all)
    }

    pub(crate) fn list_in(namespace: &Namespace) -> Result<ListResult<Self>, Error> {
        let listed = namespace.enter(list_devices)?;
        let mut listed =
            listed.map_err(|error| Error::system("list the network devices", error))?;
        for device in &mut listed.all {
            device.namespace = namespace.clone();
        }
        Ok(listed)
    }
}

/// Selects the devices with the given names, which must exist, or without names all usable ones.
pub(crate) fn select(
    known: Vec<Device>,
    names: &[impl AsRef<OsStr>],
) -> Result<Vec<Device>, Error> {
    for name in names.iter().map(AsRef::as_ref) {
        if !known.iter().any(|device| device.has_name(name)) {
            let known: Vec<_> = known.iter().map(ToString::to_string).collect();
            return Err(Error::UnknownDevice {
                name: escaped(name),
                known: known.join(", "),
            });
        }
    }
    let is_selected = |device: &Device| device.is_selected(names);
    let selected: Vec<_> = known.into_iter().filter(is_selected).collect();
    if selected.is_empty() {
        return Err(Error::NoDevice);
    }
    Ok(selected)
}

/// All devices of the calling thread's network namespace.
fn list_devices() -> io::Result<ListResult<Device>> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    netlink::list(request, libc::RTM_NEWLINK, device)
}

fn device(body: &[u8]) -> Result<Device, DecodeError> {
    let header = LinkMessageHeader::parse(body)?;
    let mut device = Device {
        name: OsString::new(),
        other_names: Vec::new(),
        index: header.index,
        link_header: LinkHeader::from_link_layer(header.link_layer_type),
        up: header.flags.contains(LinkFlags::Up),
        loopback: header.flags.contains(LinkFlags::Loopback),
        is_port: false,
        namespace: Namespace::default(),
    };
    each_attribute(
        attributes(body, size_of::<libc::ifinfomsg>()),
        |kind, value| {
            match kind {
                libc::IFLA_IFNAME => device.name = name(value),
                libc::IFLA_MASTER => device.is_port = true,
                libc::IFLA_PROP_LIST => each_attribute(value, |kind, value| {
                    if kind == libc::IFLA_ALT_IFNAME {
                        device.other_names.push(name(value));
                    }
                    Ok(())
                })?,
                _ => {}
            }
            Ok(())
        },
    )?;
    if device.name.is_empty() {
        return Err("a network device without a name".into());
    }
    Ok(device)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use netlink_packet_core::NLA_F_NESTED;

    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn link(attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![0; size_of::<libc::ifinfomsg>()];
        body[4] = 7;
        body.extend(attributes.concat());
        body
    }

    #[test]
    fn device_name_may_hold_any_bytes() {
        let other = attribute(libc::IFLA_ALT_IFNAME, b"\xfc\0");
        let body = link(&[
            attribute(libc::IFLA_IFNAME, b"B\xff\0"),
            attribute(libc::IFLA_IFALIAS, b"\xfe\xff"),
            attribute(libc::IFLA_PROP_LIST | NLA_F_NESTED, &other),
        ]);
        let device = device(&body).unwrap();
        assert_eq!(device.index, 7);
        assert_eq!(device.name.as_bytes(), b"B\xff");
        assert_eq!(device.other_names, [OsStr::from_bytes(b"\xfc")]);
    }

    #[test]
    fn malformed_netlink_message_is_error_without_panic() {
        let whole = link(&[attribute(libc::IFLA_IFNAME, b"eth0\0")]);
        assert!(device(&whole).is_ok());
        for length in 0..whole.len() - 3 {
            assert!(device(&whole[..length]).is_err(), "{length}");
        }
        for byte in 16..whole.len() {
            for value in 0..=u8::MAX {
                let mut damaged = whole.clone();
                damaged[byte] = value;
                let _ = device(&damaged);
            }
        }
    }
}
