use std::os::fd::{AsFd, OwnedFd};

use crate::link::{self, Target};
use crate::{Device, Error, Programs};

/// The programs at one device.
#[derive(Debug)]
pub(crate) struct Stand {
    pub(crate) device: Device,
    links: [OwnedFd; 2],
}

impl Stand {
    /// Attaches them, behind programs already there.
    pub(crate) fn take(programs: &Programs, device: &Device) -> Result<Self, Error> {
        let header = device.link_header.ok_or_else(|| Error::UnknownLinkHeader {
            name: device.name.clone(),
        })?;
        let at = programs.at(header);
        let attach = |program: &OwnedFd, target| {
            link::attach(program.as_fd(), &target).map_err(|error| device_error(device, error))
        };
        Ok(Self {
            links: [
                attach(&at.report, Target::Ingress(device.index))?,
                attach(&at.egress, Target::Egress(device.index))?,
            ],
            device: device.clone(),
        })
    }

    /// False if the device is gone; another one may have its interface index.
    pub(crate) fn holds(&self) -> bool {
        self.links.iter().all(|link| link::has_device(link.as_fd()))
    }

    pub(crate) fn leave(self) {
        self.links.into_iter().for_each(link::detach);
    }
}

fn device_error(device: &Device, error: std::io::Error) -> Error {
    let action = format!("attach to {}", device.name);
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::EOPNOTSUPP) => Error::Unsupported {
            action,
            feature: "tcx",
            remedy: "it came with Linux 6.6",
        },
        _ => Error::system(action, error),
    }
}
