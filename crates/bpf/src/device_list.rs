//! The devices that there are, and which of them are meant.

use std::ffi::OsStr;

use pillion_stats::names::escaped;

use crate::netlink::{self, Listed};
use crate::{Device, Error, Namespace};

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

    /// All devices of this network namespace, as far as they can be read.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn list() -> Result<Vec<Self>, Error> {
        Self::list_in(&Namespace::default()).map(|listed| listed.all)
    }

    pub(crate) fn list_in(namespace: &Namespace) -> Result<Listed<Self>, Error> {
        let listed = namespace.enter(netlink::list_devices)?;
        let mut listed =
            listed.map_err(|error| Error::system("list the network devices", error))?;
        for device in &mut listed.all {
            device.namespace = namespace.clone();
        }
        Ok(listed)
    }
}

/// Of these devices, those with the names given, each of which has to be there, or all that are
/// usable.
pub(crate) fn select(
    known: Vec<Device>,
    names: &[impl AsRef<OsStr>],
) -> Result<Vec<Device>, Error> {
    for name in names.iter().map(AsRef::as_ref) {
        if !known.iter().any(|device| device.is_called(name)) {
            let known: Vec<_> = known.iter().map(ToString::to_string).collect();
            return Err(Error::UnknownDevice {
                name: escaped(name),
                known: known.join(", "),
            });
        }
    }
    let is_meant = |device: &Device| device.is_meant(names);
    let selected: Vec<_> = known.into_iter().filter(is_meant).collect();
    if selected.is_empty() {
        return Err(Error::NoDevice);
    }
    Ok(selected)
}
