//! The programs at their devices, attached wherever they are wanted and while there is room.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};

use crate::clsact::Clsact;
use crate::link::{self, Target};
use crate::selection::{Selection, Step};
use crate::{Change, Device, Error, Hook, Namespace, Programs};

/// All devices that the programs are attached to, with what keeps them attached.
#[derive(Debug)]
pub(crate) struct DeviceAttachments {
    all: Vec<DeviceAttachment>,
    share: Share,
    /// Devices, by namespace and interface index, that were there when following began, and have to
    /// wait: they are not told of as come.
    waiting: Vec<(Option<u64>, u32)>,
}

impl DeviceAttachments {
    /// Attaches the programs to these devices, whatever becomes of others.
    pub(crate) fn at(programs: &Programs, devices: &[Device]) -> Result<Self, Error> {
        let attached = devices
            .iter()
            .map(|device| DeviceAttachment::begin(programs, device));
        Ok(Self {
            all: attached.collect::<Result<_, _>>()?,
            share: Share::of_this_process(programs.hook, 1, 0),
            waiting: Vec::new(),
        })
    }

    /// Attaches the programs to as many of a selection's devices as `patience` suffices for, one at
    /// least.
    pub(crate) fn begin(
        programs: &Programs,
        selection: &mut Selection,
        patience: Option<Duration>,
        changes: &mut Vec<Change>,
    ) -> Result<Self, Error> {
        let mut attached = Self {
            all: Vec::new(),
            share: Share::of_this_process(programs.hook, selection.namespace_count(), 0),
            waiting: Vec::new(),
        };
        let mut refused = Vec::new();
        selection.look(|_| false, &mut refused);
        let more = attached.attach(programs, selection, patience, &mut refused);
        // What is there at the start has not come.
        refused.retain(|change| matches!(change, Change::Refused(_)));
        let is_named = !selection.names.is_empty();
        // What nobody can read is not what was named.
        let matters = |change: &Change| match change {
            Change::Refused(error) => !matches!(error, Error::Unreadable { .. }),
            _ => false,
        };
        if (is_named || attached.all.is_empty())
            && let Some(first) = refused.iter().position(matters)
            && let Change::Refused(error) = refused.swap_remove(first)
        {
            return Err(error);
        }
        if attached.all.is_empty() {
            selection.devices()?;
            if !selection.may_be_empty() {
                return Err(Error::NoDevice);
            }
        }
        changes.append(&mut refused);
        for namespace in selection.namespaces() {
            let mut waiting = selection.wanted(&namespace).to_vec();
            waiting.retain(|device| {
                !attached.has(device) && !selection.troubles.has(&attach_to(device))
            });
            attached.waiting.extend(waiting.iter().map(identity));
        }
        selection.set_clock(more);
        Ok(attached)
    }

    /// Shares what room there is among the namespaces of another selection.
    pub(crate) fn share_among(&mut self, programs: &Programs, selection: &Selection) {
        let namespaces = selection.namespace_count();
        self.share = Share::of_this_process(programs.hook, namespaces, self.all.len());
    }

    pub(crate) fn has(&self, device: &Device) -> bool {
        self.all.iter().any(|attached| attached.device.is(device))
    }

    /// The namespaces of devices from which others have detached a link, of which nobody tells. Of
    /// filters (clsact) the kernel does.
    pub(crate) fn detached_in(&self) -> Vec<Namespace> {
        let detached = self.all.iter().filter(|it| !it.is_clsact() && !it.holds());
        detached.map(|it| it.device.namespace.clone()).collect()
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = &Device> {
        self.all.iter().map(|attached| &attached.device)
    }

    /// Leaves devices and namespaces that are gone; the devices of those `looked` at are known
    /// as they are now.
    pub(crate) fn detach_the_gone(
        &mut self,
        selection: &mut Selection,
        looked: &[Namespace],
        changes: &mut Vec<Change>,
    ) {
        let namespaces = selection.namespaces();
        for mut attached in std::mem::take(&mut self.all) {
            let namespace = &attached.device.namespace;
            if !namespaces.contains(namespace) {
                // With a namespace, all of its devices go.
                attached.detach();
                continue;
            }
            if !looked.contains(namespace) {
                self.all.push(attached);
                continue;
            }
            let mut wanted = selection.wanted(namespace).iter();
            match wanted.find(|device| device.is(&attached.device)).cloned() {
                Some(device) if attached.holds() => {
                    attached.device = device;
                    self.all.push(attached);
                }
                Some(device) if attached.is_clsact() => {
                    let taken_away = Error::TakenAway {
                        device: device.to_string(),
                    };
                    let step = attach_to(&device);
                    let said = selection.troubles.failed(step, taken_away);
                    changes.extend(said.map(Change::Refused));
                    attached.detach();
                }
                _ => {
                    changes.push(Change::Gone(attached.device.to_string()));
                    attached.detach();
                }
            }
        }
    }

    /// Attaches the programs where they are wanted, until `patience` ends: each can take the kernel
    /// tens of milliseconds. True if more are to be attached then.
    pub(crate) fn attach(
        &mut self,
        programs: &Programs,
        selection: &mut Selection,
        patience: Option<Duration>,
        changes: &mut Vec<Change>,
    ) -> bool {
        let begun = Instant::now();
        for (number, device) in self.to_attach(selection, changes).into_iter().enumerate() {
            if number > 0 && patience.is_some_and(|patience| begun.elapsed() >= patience) {
                return true;
            }
            let attached = match DeviceAttachment::begin(programs, &device) {
                // News of its end is on the way.
                Err(Error::System { source, .. }) if has_no_device(&source) => continue,
                taken => selection
                    .troubles
                    .outcome_of(attach_to(&device), taken, changes),
            };
            if let Some(attached) = attached {
                self.all.push(attached);
                let identity = identity(&device);
                if !self.waiting.contains(&identity) {
                    changes.push(Change::Come(device.to_string()));
                }
                self.waiting.retain(|waiting| *waiting != identity);
            }
        }
        false
    }

    /// Devices that are to be attached to, as many as there is room for, of each namespace in turn.
    fn to_attach(&self, selection: &mut Selection, changes: &mut Vec<Change>) -> Vec<Device> {
        let mut queue = Vec::new();
        for namespace in selection.namespaces() {
            let id = namespace.id();
            let here = self.devices().filter(|it| it.namespace == namespace);
            let room = self.share.each().saturating_sub(here.count());
            let wanted = selection.wanted(&namespace).to_vec();
            let lacking: Vec<_> = wanted.into_iter().filter(|it| !self.has(it)).collect();
            let fits = match lacking.len() <= room {
                true => Ok(()),
                false => Err(self.share.error(namespace.name())),
            };
            selection.troubles.outcome_of(Step::Hold(id), fits, changes);
            let may_try = |device: &Device| selection.troubles.may_try(&attach_to(device));
            let due = lacking.into_iter().filter(may_try).take(room);
            queue.extend(due.enumerate());
        }
        queue.sort_by_key(|(turn, _)| *turn);
        queue.into_iter().map(|(_, device)| device).collect()
    }

    /// Leaves the devices' egress.
    pub(crate) fn stop_bundling(&mut self) {
        let all = self.all.iter_mut();
        all.for_each(DeviceAttachment::stop_bundling);
    }

    pub(crate) fn detach(&mut self) {
        self.all.drain(..).for_each(DeviceAttachment::detach);
    }
}

fn identity(device: &Device) -> (Option<u64>, u32) {
    (device.namespace.id(), device.index)
}

fn attach_to(device: &Device) -> Step {
    Step::Attach(device.namespace.id(), device.index)
}

fn has_no_device(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV)
}

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

/// File descriptors that one device takes, by tcx.
const OF_A_DEVICE: usize = 2;

/// File descriptors of a namespace that has a name: what keeps it, and what tells of its devices.
const OF_A_NAMESPACE: usize = 2;

/// File descriptors kept free, so that devices never keep anything else from going on: lists of
/// devices, rules that are read again, connections that are taken in.
const SPARE: usize = 24;

/// How many devices there is room for: links are file descriptors, of which a process has no more than
/// its limit (`RLIMIT_NOFILE`). An equal share of the free file descriptors for each namespace: none can take the room of
/// another.
#[derive(Debug)]
pub(crate) struct Share {
    each: usize,
    limit: usize,
}

impl Share {
    /// The share of each of so many namespaces, beside what this process holds already for other ends
    /// than so many devices.
    pub(crate) fn of_this_process(hook: Hook, namespaces: usize, devices: usize) -> Self {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(usize::MAX, |(soft, _)| {
            usize::try_from(soft).unwrap_or(usize::MAX)
        });
        // One of them reads the list.
        let held = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let held = held.saturating_sub(OF_A_DEVICE * devices);
        let each = match hook {
            Hook::Tcx => share(limit, held, namespaces),
            // Filters take no descriptors.
            Hook::Clsact => usize::MAX,
        };
        Self { each, limit }
    }

    /// The most devices of one namespace.
    pub(crate) fn each(&self) -> usize {
        self.each
    }

    pub(crate) fn error(&self, namespace: Option<&str>) -> Error {
        Error::NoRoom {
            namespace: namespace.map(str::to_owned),
            most: self.each,
            limit: self.limit,
        }
    }
}

fn share(limit: usize, held: usize, namespaces: usize) -> usize {
    let namespaces = namespaces.max(1);
    // Those that have ended may be back.
    let reserved = held + SPARE + OF_A_NAMESPACE * namespaces;
    limit.saturating_sub(reserved) / OF_A_DEVICE / namespaces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_namespace_takes_the_room_of_another() {
        assert_eq!(share(1024, 40, 1), 479);
        assert_eq!(share(1024, 40, 4), 119);
        assert!(40 + SPARE + 4 * (OF_A_NAMESPACE + OF_A_DEVICE * share(1024, 40, 4)) <= 1024);
        assert_eq!(share(40, 40, 1), 0);
        assert!(share(usize::MAX, 40, 256) > 1_000_000);
    }
}
