use std::fmt;
use std::os::fd::BorrowedFd;

use crate::watch::Watch;
use crate::{Device, Error};

/// Which devices of this network namespace are bundled on, while devices come and go.
#[derive(Debug)]
pub struct Selection {
    names: Vec<String>,
    watch: Watch,
}

/// A device has come or gone, while others were bundled on.
#[derive(Debug)]
pub enum Change {
    /// Bundling takes place on this device, too.
    Come(String),
    /// This device is no more, or is called otherwise now.
    Gone(String),
    /// This device has come, but the programs could not be attached.
    Refused(Error),
}

impl Selection {
    /// The devices with these names, or, where none is named, all that are up but
    /// loopback. A name stands for whatever device has it at the time.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel's news of devices cannot be had.
    pub fn new(names: Vec<String>) -> Result<Self, Error> {
        let watch =
            Watch::begin().map_err(|error| Error::system("watch the network devices", error))?;
        Ok(Self { names, watch })
    }

    /// Those to begin with.
    ///
    /// # Errors
    /// As [`Device::select`].
    pub fn devices(&self) -> Result<Vec<Device>, Error> {
        Device::select(&self.names)
    }

    /// Readable when devices have come, gone or changed:
    /// [`Attachment::follow`](crate::Attachment::follow) then.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Those of the selection that exist now; `attached` says which ones pillion is at. A
    /// device may be switched off and on again meanwhile.
    pub(crate) fn present(&self, attached: impl Fn(u32) -> bool) -> Result<Vec<Device>, Error> {
        self.watch.take_note();
        let mut devices = Device::list()?;
        if self.names.is_empty() {
            devices.retain(|device| device.is_usable() || attached(device.index));
        } else {
            let named: Vec<_> = self
                .names
                .iter()
                .filter_map(|name| Device::index(name))
                .collect();
            devices.retain(|device| named.contains(&device.index));
        }
        Ok(devices)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Come(name) => write!(f, "{name} has come: bundling there, too"),
            Self::Gone(name) => write!(f, "{name} has gone"),
            Self::Refused(error) => write!(f, "a device has come, but not bundled on: {error}"),
        }
    }
}
