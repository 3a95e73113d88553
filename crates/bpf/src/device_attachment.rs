use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::clsact::Clsact;
use crate::link::{self, Target};
use crate::{Device, Error, Hook, Programs};

/// The programs at one device.
#[derive(Debug)]
pub(crate) struct DeviceAttachment {
    pub(crate) device: Device,
    hold: Hold,
}

#[derive(Debug)]
enum Hold {
    Tcx {
        dsack: OwnedFd,
        /// `None` once nothing is bundled any more.
        egress: Option<OwnedFd>,
    },
    Clsact(Clsact),
}

impl DeviceAttachment {
    /// Attaches the programs to a device, behind programs already there.
    pub(crate) fn begin(programs: &Programs, device: &Device) -> Result<Self, Error> {
        let header = device.link_header.ok_or_else(|| Error::UnknownLinkHeader {
            name: device.to_string(),
        })?;
        let at = programs.at(header);
        let (dsack, egress) = (at.dsack.as_fd(), at.egress.as_fd());
        let index = device.index;
        let by_links = || -> io::Result<Hold> {
            Ok(Hold::Tcx {
                dsack: link::attach(dsack, &Target::Ingress(index))?,
                egress: Some(link::attach(egress, &Target::Egress(index))?),
            })
        };
        let hold = match programs.hook {
            Hook::Tcx => device.namespace.enter(by_links)?,
            Hook::Clsact => Ok(Hold::Clsact(Clsact::attach(device, dsack, egress)?)),
        };
        Ok(Self {
            hold: hold.map_err(|error| Error::at_device(device, programs.hook, error))?,
            device: device.clone(),
        })
    }

    /// False if the device is gone; another one may have its interface index.
    pub(crate) fn holds(&self) -> bool {
        match &self.hold {
            Hold::Tcx { dsack, egress } => {
                let mut links = egress.iter().chain([dsack]);
                links.all(|link| link::has_device(link.as_fd()))
            }
            Hold::Clsact(clsact) => clsact.holds(),
        }
    }

    /// True if the programs are clsact's filters, which others can remove while the device lives.
    pub(crate) fn is_clsact(&self) -> bool {
        matches!(self.hold, Hold::Clsact(_))
    }

    /// Leaves the device's egress, and goes on at its ingress.
    pub(crate) fn stop_bundling(&mut self) {
        match &mut self.hold {
            Hold::Tcx { egress, .. } => egress.take().into_iter().for_each(link::detach),
            Hold::Clsact(clsact) => clsact.stop_bundling(),
        }
    }

    pub(crate) fn detach(self) {
        match self.hold {
            Hold::Tcx { dsack, egress } => egress.into_iter().chain([dsack]).for_each(link::detach),
            Hold::Clsact(clsact) => drop(clsact),
        }
    }
}
