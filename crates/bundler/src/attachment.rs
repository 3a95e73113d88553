use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::link::{self, Target};
use crate::stand::Stand;
use crate::{Change, Device, Error, Policy, Programs, Selection, Totals};

/// Programs at work. Dropping it, or the end of the process, detaches them all.
#[derive(Debug)]
pub struct Attachment {
    programs: Programs,
    stands: Vec<Stand>,
    /// Devices on which they could not be, so that this is said once.
    refused: Vec<u32>,
    links: Vec<OwnedFd>,
}

impl Attachment {
    /// Bundles the connections of a cgroup (and those below it) on the devices given.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the kernel has no tcx, [`Error::CgroupTaken`],
    /// [`Error::NotPermitted`].
    pub fn new(programs: Programs, cgroup: BorrowedFd, devices: &[Device]) -> Result<Self, Error> {
        let stands = devices
            .iter()
            .map(|device| Stand::take(&programs, device))
            .collect::<Result<_, _>>()?;
        let mut links = Vec::new();
        // The connections come last: each is bundled from its first byte or not at all.
        for (program, target) in [
            (&programs.react, Target::CgroupEgress(cgroup)),
            (&programs.ingress, Target::CgroupIngress(cgroup)),
            (&programs.sockops, Target::SockOps(cgroup)),
        ] {
            let link = link::attach(program.as_fd(), &target).map_err(cgroup_error)?;
            links.push(link);
        }
        for (program, target) in [
            (&programs.setsockopt, Target::SetSockOpt(cgroup)),
            (&programs.getsockopt, Target::GetSockOpt(cgroup)),
        ] {
            if let Some(program) = program {
                let link = link::attach(program.as_fd(), &target).map_err(cgroup_error)?;
                links.push(link);
            }
        }
        Ok(Self {
            programs,
            stands,
            refused: Vec::new(),
            links,
        })
    }

    /// Leaves devices that are gone, and takes those of the selection that have come.
    ///
    /// # Errors
    /// [`Error::System`] if the devices cannot be listed.
    pub fn follow(&mut self, selection: &Selection) -> Result<Vec<Change>, Error> {
        let present = selection.present(|index| self.is_at(index))?;
        let is_present = |index| present.iter().any(|device| device.index == index);
        let mut changes = Vec::new();
        self.refused.retain(|index| is_present(*index));
        for mut stand in std::mem::take(&mut self.stands) {
            let same = |device: &&Device| device.index == stand.device.index;
            match present.iter().find(same) {
                Some(device) if stand.holds() => {
                    stand.device = device.clone();
                    self.stands.push(stand);
                }
                _ => {
                    changes.push(Change::Gone(stand.device.name.clone()));
                    stand.leave();
                }
            }
        }
        for device in present {
            if self.is_at(device.index) || self.refused.contains(&device.index) {
                continue;
            }
            match Stand::take(&self.programs, &device) {
                Ok(stand) => {
                    self.stands.push(stand);
                    changes.push(Change::Come(device.name));
                }
                Err(error) => {
                    self.refused.push(device.index);
                    changes.push(Change::Refused(error));
                }
            }
        }
        Ok(changes)
    }

    fn is_at(&self, index: u32) -> bool {
        self.stands.iter().any(|stand| stand.device.index == index)
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
        self.stands.drain(..).for_each(Stand::leave);
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
