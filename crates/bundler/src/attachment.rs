use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::link::{self, Target};
use crate::places::Room;
use crate::stand::Stand;
use crate::{Change, Device, Error, FlowReader, Namespace, Policy, Programs, Selection, Totals};

/// Programs at work. Dropping it, or the end of the process, detaches them all.
#[derive(Debug)]
pub struct Attachment {
    programs: Programs,
    stands: Vec<Stand>,
    /// Devices on which they could not be, so that this is said once.
    refused: Vec<Device>,
    links: Vec<OwnedFd>,
    room: Room,
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
            (&programs.transmit, Target::CgroupEgress(cgroup)),
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
            room: Room::default(),
        })
    }

    /// Leaves devices that are gone, and takes those of the selection that have come; the
    /// same for network namespaces that have names.
    ///
    /// # Errors
    /// [`Error::System`] if the devices cannot be listed.
    pub fn follow(&mut self, selection: &mut Selection) -> Result<Vec<Change>, Error> {
        let (mut changes, devices_changed) = selection.take_note();
        if !devices_changed {
            return Ok(changes);
        }
        let present = selection.present(|device| self.is_at(device))?;
        let namespaces = selection.namespaces();
        self.refused
            .retain(|device| present.iter().any(|other| other.is(device)));
        for mut stand in std::mem::take(&mut self.stands) {
            match present.iter().find(|device| device.is(&stand.device)) {
                Some(device) if stand.holds() => {
                    stand.device = device.clone();
                    self.stands.push(stand);
                }
                _ => {
                    // With a namespace, all of its devices go.
                    if namespaces.contains(&stand.device.namespace) {
                        changes.push(Change::Gone(stand.device.to_string()));
                    }
                    stand.leave();
                }
            }
        }
        for device in present {
            if self.is_at(&device) || self.refused.iter().any(|other| other.is(&device)) {
                continue;
            }
            match Stand::take(&self.programs, &device) {
                Ok(stand) => {
                    self.stands.push(stand);
                    changes.push(Change::Come(device.to_string()));
                }
                Err(error) => {
                    self.refused.push(device);
                    changes.push(Change::Refused(error));
                }
            }
        }
        let come = self.programs.served.change(&namespaces)?;
        self.review_in(&come)?;
        Ok(changes)
    }

    fn is_at(&self, device: &Device) -> bool {
        self.stands.iter().any(|stand| stand.device.is(device))
    }

    /// Applies the rules to the connections that exist already in the network namespaces
    /// of the scope (with [`Scope::Anywhere`](crate::Scope), in this one): takes in those
    /// covered, changes the options of those taken in before, which keep their history and
    /// counters, and lets go of those no longer covered. Returns how many are covered.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel has no TCP iterator.
    pub fn review(&self) -> Result<usize, Error> {
        self.review_in(self.programs.served.namespaces())
    }

    fn review_in(&self, namespaces: &[Namespace]) -> Result<usize, Error> {
        let failed = |error| Error::system("take in connections that exist already", error);
        let link =
            link::attach(self.programs.review.as_fd(), &Target::Iterator(None)).map_err(failed)?;
        let mut covered = Vec::new();
        for namespace in namespaces {
            let run = namespace.enter(|| link::run_iterator(link.as_fd()))?;
            let mut run = File::from(run.map_err(failed)?);
            run.read_to_end(&mut covered).map_err(failed)?;
        }
        Ok(covered.len())
    }

    /// Where connections have found no place, as there were as many as
    /// [`Policy::max_connections`] allows: looks how many there are still, and takes in those
    /// that have a place now. To be called each second or so; returns what is worth telling.
    ///
    /// # Errors
    /// [`Error::System`] if they cannot be counted.
    pub fn recount(&mut self) -> Result<Option<Change>, Error> {
        let refused = self.totals()?.over_limit;
        if !self.room.look(refused) {
            return Ok(None);
        }
        self.programs.places.recount()?;
        let refused = self.totals()?.over_limit;
        self.review()?;
        Ok(self.room.note(refused, self.totals()?.over_limit))
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

    /// What its connections can be read with, as often as is wanted.
    ///
    /// # Errors
    /// [`Error::NotPermitted`], [`Error::Load`] where the kernel has no iterator over socket
    /// storage.
    pub fn flows(&self) -> Result<FlowReader, Error> {
        FlowReader::of(self.programs.flows.as_fd())
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
