use netlink_packet_route::link::LinkLayerType;
use nix::net::if_::if_nametoindex;

use crate::{Error, netlink};

/// A network device of the current network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name, as `ip link` shows it.
    pub name: String,
    /// Its interface index.
    pub index: u32,
    /// What its packets begin with; `None` if it is something that is not known here.
    pub link_header: Option<LinkHeader>,
    /// It is switched on.
    pub up: bool,
    /// It is the namespace's loopback device.
    pub loopback: bool,
}

/// What a device's packets begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkHeader {
    /// An Ethernet header, and VLAN tags if there are any.
    Ethernet,
    /// The IP header: tun, WireGuard, PPP, tunnels of IP in IP.
    Absent,
}

impl LinkHeader {
    /// By the device's type, as the kernel's `if_arp.h` numbers them.
    pub(crate) fn of(kind: LinkLayerType) -> Option<Self> {
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
    /// Finds devices by name, or, where none is named, all that are up but loopback.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] for a name that does not exist, [`Error::NoDevice`]
    /// when none is named and none is up, [`Error::UnknownLinkHeader`].
    pub fn select(names: &[String]) -> Result<Vec<Self>, Error> {
        let known = Self::list()?;
        if names.is_empty() {
            let up: Vec<_> = known.into_iter().filter(Self::is_usable).collect();
            return if up.is_empty() {
                Err(Error::NoDevice)
            } else {
                Ok(up)
            };
        }
        let mut devices: Vec<Self> = Vec::new();
        for name in names {
            let device = Self::named(name, &known)?;
            // Once, though a device may have several names.
            if devices.iter().all(|other| other.index != device.index) {
                devices.push(device.clone());
            }
        }
        Ok(devices)
    }

    /// All of this network namespace.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn list() -> Result<Vec<Self>, Error> {
        netlink::list_devices().map_err(|error| Error::system("list the network devices", error))
    }

    /// Taken if none is named.
    pub(crate) fn is_usable(&self) -> bool {
        self.up && !self.loopback && self.link_header.is_some()
    }

    /// An address may have a label of its own, which names its device, too.
    pub(crate) fn index(name: &str) -> Option<u32> {
        if_nametoindex(name).ok()
    }

    fn named<'a>(name: &str, known: &'a [Self]) -> Result<&'a Self, Error> {
        let index = Self::index(name);
        let device = known.iter().find(|device| Some(device.index) == index);
        device.ok_or_else(|| Error::UnknownDevice {
            name: name.to_owned(),
            known: known
                .iter()
                .map(|device| device.name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        })
    }
}
