use std::collections::BTreeMap;
use std::io;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

use crate::Error;

/// A network device of the current network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name, as `ip link` shows it.
    pub name: String,
    /// Its interface index.
    pub index: u32,
}

impl Device {
    /// Finds devices by name, or, where none is named, all that are up but loopback.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] for a name that does not exist, [`Error::NoDevice`]
    /// when none is named and none is up.
    pub fn select(names: &[String]) -> Result<Vec<Self>, Error> {
        let known = devices()?;
        if names.is_empty() {
            let wanted = |flags: &InterfaceFlags| {
                flags.contains(InterfaceFlags::IFF_UP)
                    && !flags.contains(InterfaceFlags::IFF_LOOPBACK)
            };
            let up: Vec<_> = known.iter().filter(|(_, flags)| wanted(flags)).collect();
            if up.is_empty() {
                return Err(Error::NoDevice);
            }
            return Self::named_all(up.into_iter().map(|(name, _)| name), &known);
        }
        Self::named_all(names.iter(), &known)
    }

    /// Each once: an address may have a label of its own, which names its device, too.
    fn named_all<'a>(
        names: impl Iterator<Item = &'a String>,
        known: &BTreeMap<String, InterfaceFlags>,
    ) -> Result<Vec<Self>, Error> {
        let mut devices: Vec<Self> = Vec::new();
        for name in names {
            let device = Self::named(name, known)?;
            if devices.iter().all(|other| other.index != device.index) {
                devices.push(device);
            }
        }
        Ok(devices)
    }

    fn named(name: &str, known: &BTreeMap<String, InterfaceFlags>) -> Result<Self, Error> {
        let index = if_nametoindex(name).map_err(|_| Error::UnknownDevice {
            name: name.to_owned(),
            known: known.keys().cloned().collect::<Vec<_>>().join(", "),
        })?;
        Ok(Self {
            name: name.to_owned(),
            index,
        })
    }
}

fn devices() -> Result<BTreeMap<String, InterfaceFlags>, Error> {
    let addresses = getifaddrs()
        .map_err(|errno| Error::system("list the network devices", io::Error::from(errno)))?;
    Ok(addresses
        .map(|address| (address.interface_name, address.flags))
        .collect())
}
