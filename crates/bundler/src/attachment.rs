use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::link::{self, Target};
use crate::{Device, Error, Policy, Programs, Totals};

/// Programs at work. Dropping it, or the end of the process, detaches them all.
#[derive(Debug)]
pub struct Attachment {
    programs: Programs,
    links: Vec<OwnedFd>,
}

impl Attachment {
    /// Bundles the connections of a cgroup (and those below it) on the devices given.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the kernel has no tcx, [`Error::CgroupTaken`],
    /// [`Error::NotPermitted`].
    pub fn new(programs: Programs, cgroup: BorrowedFd, devices: &[Device]) -> Result<Self, Error> {
        let mut links = Vec::with_capacity(2 * devices.len() + 3);
        for device in devices {
            let header = device.link_header.ok_or_else(|| Error::UnknownLinkHeader {
                name: device.name.clone(),
            })?;
            let at = programs.at(header);
            for (program, target) in [
                (&at.report, Target::Ingress(device.index)),
                (&at.egress, Target::Egress(device.index)),
            ] {
                let link = link::attach(program.as_fd(), &target)
                    .map_err(|error| device_error(device, error))?;
                links.push(link);
            }
        }
        // The connections come last: each is bundled from its first byte or not at all.
        for (program, target) in [
            (&programs.react, Target::CgroupEgress(cgroup)),
            (&programs.ingress, Target::CgroupIngress(cgroup)),
            (&programs.sockops, Target::SockOps(cgroup)),
        ] {
            let link = link::attach(program.as_fd(), &target).map_err(cgroup_error)?;
            links.push(link);
        }
        Ok(Self { programs, links })
    }

    /// Applies the rules to the connections of this network namespace that exist already:
    /// takes in those covered, changes the options of those taken in before, which keep
    /// their history and counters, and lets go of those no longer covered. Returns how
    /// many are covered.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel has no TCP iterator.
    pub fn review(&self) -> Result<usize, Error> {
        let failed = |error| Error::system("take in connections that exist already", error);
        let link =
            link::attach(self.programs.review.as_fd(), &Target::Iterator(None)).map_err(failed)?;
        let mut run = File::from(link::run_iterator(link.as_fd()).map_err(failed)?);
        let mut covered = Vec::new();
        run.read_to_end(&mut covered).map_err(failed)
    }

    /// Puts other rules into force, for new connections at once and for those that exist
    /// as [`Attachment::review`] does. The scope stays as it was.
    ///
    /// # Errors
    /// [`Error::TooManyRules`], with the rules in force as they were; [`Error::System`].
    pub fn replace_rules(&self, policy: &Policy) -> Result<usize, Error> {
        self.programs.tables.store(policy)?;
        self.review()
    }

    /// What was done so far.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel refuses to read the map.
    pub fn totals(&self) -> Result<Totals, Error> {
        Totals::read(&self.programs.totals)
    }

    /// Detaches the programs; what they did can still be read.
    pub fn detach(&mut self) {
        for link in self.links.drain(..) {
            link::detach(link);
        }
    }
}

/// Who may load the programs may attach them as well.
fn cgroup_error(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => Error::CgroupTaken,
        _ => Error::system("attach to the cgroup", error),
    }
}

fn device_error(device: &Device, error: io::Error) -> Error {
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
