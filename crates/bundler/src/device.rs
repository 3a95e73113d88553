use std::fmt;

use netlink_packet_route::link::LinkLayerType;
use nix::net::if_::if_nametoindex;

use crate::{Error, Namespace, netlink};

/// A network device.
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
    /// Where it is.
    pub namespace: Namespace,
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
    /// Finds devices of this network namespace by name, or, where none is named, all that
    /// are up but loopback.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] for a name that does not exist, [`Error::NoDevice`]
    /// when none is named and none is up, [`Error::UnknownLinkHeader`].
    pub fn select(names: &[String]) -> Result<Vec<Self>, Error> {
        Self::select_in(&[Namespace::default()], names)
    }

    /// The same in several, of which one at least has to have such devices.
    pub(crate) fn select_in(
        namespaces: &[Namespace],
        names: &[String],
    ) -> Result<Vec<Self>, Error> {
        let mut known = Vec::new();
        for namespace in namespaces {
            known.extend(Self::list_in(namespace)?);
        }
        if names.is_empty() {
            known.retain(Self::is_usable);
            return if known.is_empty() {
                Err(Error::NoDevice)
            } else {
                Ok(known)
            };
        }
        let mut devices: Vec<Self> = Vec::new();
        for name in names {
            for device in Self::named(name, namespaces, &known)? {
                // Once, though a device may have several names.
                if devices.iter().all(|other| !other.is(device)) {
                    devices.push(device.clone());
                }
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

    pub(crate) fn list_in(namespace: &Namespace) -> Result<Vec<Self>, Error> {
        let mut devices = namespace.enter(Self::list)??;
        for device in &mut devices {
            device.namespace = namespace.clone();
        }
        Ok(devices)
    }

    /// The same one, whatever has become of it.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.index == other.index && self.namespace == other.namespace
    }

    /// Taken if none is named.
    pub(crate) fn is_usable(&self) -> bool {
        self.up && !self.loopback && self.link_header.is_some()
    }

    /// An address may have a label of its own, which names its device, too.
    pub(crate) fn index(name: &str) -> Option<u32> {
        if_nametoindex(name).ok()
    }

    fn named<'a>(
        name: &str,
        namespaces: &[Namespace],
        known: &'a [Self],
    ) -> Result<Vec<&'a Self>, Error> {
        let mut found = Vec::new();
        for namespace in namespaces {
            let index = namespace.enter(|| Self::index(name))?;
            found.extend(
                known
                    .iter()
                    .filter(|device| Some(device.index) == index && device.namespace == *namespace),
            );
        }
        if !found.is_empty() {
            return Ok(found);
        }
        let known: Vec<_> = known.iter().map(ToString::to_string).collect();
        Err(Error::UnknownDevice {
            name: name.to_owned(),
            known: known.join(", "),
        })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.namespace.name() {
            None => f.write_str(&self.name),
            Some(namespace) => write!(f, "{} in {namespace}", self.name),
        }
    }
}
