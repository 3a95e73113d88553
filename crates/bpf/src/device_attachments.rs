//! The programs at their devices, within the limit of file descriptors.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};

use crate::attach_targets::{AttachTargets, Step};
use crate::clsact::Clsact;
use crate::device_segments::{self, DeviceKey, SegmentWindow, Segments};
use crate::link::{self, AttachPoint};
use crate::{Change, Device, Error, Hook, Namespace, Programs};

/// All devices with attached programs, and their links.
#[derive(Debug)]
pub(crate) struct DeviceAttachments {
    all: Vec<DeviceAttachment>,
    limits: DeviceLimits,
    /// Initial devices, by namespace and interface index, that are not attached yet: they are not
    /// reported as attached later.
    pending: Vec<(Option<u64>, u32)>,
}

impl DeviceAttachments {
    /// Attaches the programs to all of these devices; fails if any attachment fails.
    pub(crate) fn attach_all(programs: &Programs, devices: &[Device]) -> Result<Self, Error> {
        let attached = devices
            .iter()
            .map(|device| DeviceAttachment::attach(programs, device));
        Ok(Self {
            all: attached.collect::<Result<_, _>>()?,
            limits: DeviceLimits::for_process(programs.hook, 1, 0),
            pending: Vec::new(),
        })
    }

    /// Attaches the programs to as many of the targets' devices as `timeout` suffices for, at least
    /// one.
    pub(crate) fn start(
        programs: &Programs,
        targets: &mut AttachTargets,
        timeout: Option<Duration>,
        changes: &mut Vec<Change>,
    ) -> Result<Self, Error> {
        let mut attached = Self {
            all: Vec::new(),
            limits: DeviceLimits::for_process(programs.hook, targets.namespace_count(), 0),
            pending: Vec::new(),
        };
        let mut failures = Vec::new();
        targets.refresh(|_| false, &mut failures);
        let more = attached.attach(programs, targets, timeout, &mut failures);
        // Initial attachments are not reported.
        failures.retain(|change| matches!(change, Change::Failed(_)));
        let is_named = !targets.names.is_empty();
        // Unparsed devices are not among the named ones.
        let is_relevant = |change: &Change| match change {
            Change::Failed(error) => !matches!(error, Error::Unreadable { .. }),
            _ => false,
        };
        if (is_named || attached.all.is_empty())
            && let Some(first) = failures.iter().position(is_relevant)
            && let Change::Failed(error) = failures.swap_remove(first)
        {
            return Err(error);
        }
        if attached.all.is_empty() {
            targets.devices()?;
            if !targets.may_be_empty() {
                return Err(Error::NoDevice);
            }
        }
        changes.append(&mut failures);
        for namespace in targets.namespaces() {
            let mut pending = targets.devices_of(&namespace).to_vec();
            pending.retain(|device| {
                !attached.contains(device) && !targets.retries.has_failed(&attach_to(device))
            });
            attached.pending.extend(pending.iter().map(identity));
        }
        targets.set_timer(more);
        Ok(attached)
    }

    /// Recalculates the device limits for the namespaces of other targets.
    pub(crate) fn share_limit(&mut self, programs: &Programs, targets: &AttachTargets) {
        let namespaces = targets.namespace_count();
        self.limits = DeviceLimits::for_process(programs.hook, namespaces, self.all.len());
    }

    pub(crate) fn contains(&self, device: &Device) -> bool {
        self.all
            .iter()
            .any(|attached| attached.device.is_same(device))
    }

    /// Records devices whose program does not see their segments. If another tcx program runs before
    /// it, detaches from the device; attaching again puts pillion's first. Returns the namespaces of
    /// detached devices. Programs that let segments pass are left alone: another pillion is one.
    pub(crate) fn check_segments(
        &mut self,
        programs: &Programs,
        targets: &mut AttachTargets,
        changes: &mut Vec<Change>,
    ) -> Vec<Namespace> {
        let keys: Vec<_> = self.all.iter().map(|it| it.key).collect();
        let segments = device_segments::read(&programs.device_segments, |key| keys.contains(&key));
        let mut detached = Vec::new();
        for mut attached in std::mem::take(&mut self.all) {
            let counts = segments.iter().find(|(key, _)| *key == attached.key);
            let counts = counts.map_or_else(Segments::default, |(_, it)| *it);
            let verdict = attached.window.is_bypassed(counts);
            let (id, index) = identity(&attached.device);
            let step = Step::SeeSegments(id, index);
            match verdict {
                Some(true) => {
                    let failure = targets.retries.failed(step.clone(), attached.bypassed());
                    changes.extend(failure.map(Change::Failed));
                }
                Some(false) => targets.retries.succeeded(&step),
                None => {}
            }
            let is_due = targets.retries.has_failed(&step) && targets.retries.is_due(&step);
            if is_due && attached.preceded_by().is_some() {
                detached.push(attached.device.namespace.clone());
                attached.detach();
            } else {
                self.all.push(attached);
            }
        }
        detached
    }

    /// The attached devices at which another tcx program runs before pillion's, and its id.
    pub(crate) fn preceded(&self) -> Vec<(&Device, u32)> {
        let mut namespaces: Vec<&Namespace> = Vec::new();
        for device in self.devices() {
            if !namespaces.contains(&&device.namespace) {
                namespaces.push(&device.namespace);
            }
        }
        let preceded_in = |namespace: &Namespace| {
            let all = self.all.iter();
            let all = all.filter(|it| it.device.namespace == *namespace);
            let preceded = all.filter_map(|it| Some((&it.device, it.preceding_program()?)));
            preceded.collect::<Vec<_>>()
        };
        let entered = namespaces
            .into_iter()
            .map(|namespace| namespace.enter(|| preceded_in(namespace)));
        entered.filter_map(Result::ok).flatten().collect()
    }

    /// The namespaces of devices whose link was detached by others, which causes no event. For
    /// clsact filters the kernel sends one.
    pub(crate) fn namespaces_to_reattach(&self) -> Vec<Namespace> {
        let detached = self
            .all
            .iter()
            .filter(|it| !it.is_clsact() && !it.is_attached());
        detached.map(|it| it.device.namespace.clone()).collect()
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = &Device> {
        self.all.iter().map(|attached| &attached.device)
    }

    /// Detaches from removed devices and namespaces. `listed`: namespaces with a new device list.
    pub(crate) fn detach_gone(
        &mut self,
        targets: &mut AttachTargets,
        listed: &[Namespace],
        changes: &mut Vec<Change>,
    ) {
        let namespaces = targets.namespaces();
        for mut attached in std::mem::take(&mut self.all) {
            let namespace = &attached.device.namespace;
            if !namespaces.contains(namespace) {
                // With a namespace, all of its devices go.
                attached.detach();
                continue;
            }
            if !listed.contains(namespace) {
                self.all.push(attached);
                continue;
            }
            let mut devices_of = targets.devices_of(namespace).iter();
            match devices_of
                .find(|device| device.is_same(&attached.device))
                .cloned()
            {
                Some(device) if attached.is_attached() => {
                    attached.device = device;
                    self.all.push(attached);
                }
                Some(device) if attached.is_clsact() => {
                    let filters_removed = Error::FiltersRemoved {
                        device: device.to_string(),
                    };
                    let step = attach_to(&device);
                    let failure = targets.retries.failed(step, filters_removed);
                    changes.extend(failure.map(Change::Failed));
                    attached.detach();
                }
                _ => {
                    changes.push(Change::Detached(attached.device.to_string()));
                    attached.detach();
                }
            }
        }
    }

    /// Attaches the programs to the targets' devices, until `timeout`: each can take tens of
    /// milliseconds. True if devices are left.
    pub(crate) fn attach(
        &mut self,
        programs: &Programs,
        targets: &mut AttachTargets,
        timeout: Option<Duration>,
        changes: &mut Vec<Change>,
    ) -> bool {
        let started = Instant::now();
        for (number, device) in self.to_attach(targets, changes).into_iter().enumerate() {
            if number > 0 && timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
                return true;
            }
            let attached = match DeviceAttachment::attach(programs, &device) {
                // The device was removed; an event follows.
                Err(Error::System { source, .. }) if is_device_gone(&source) => continue,
                attached => targets
                    .retries
                    .record(attach_to(&device), attached, changes),
            };
            if let Some(attached) = attached {
                self.all.push(attached);
                let identity = identity(&device);
                if !self.pending.contains(&identity) {
                    changes.push(Change::Attached(device.to_string()));
                }
                self.pending.retain(|pending| *pending != identity);
            }
        }
        false
    }

    /// Devices to attach to next: round robin over namespaces, within the descriptor limit.
    fn to_attach(&self, targets: &mut AttachTargets, changes: &mut Vec<Change>) -> Vec<Device> {
        let mut queue = Vec::new();
        for namespace in targets.namespaces() {
            let id = namespace.id();
            let attached = self.devices().filter(|it| it.namespace == namespace);
            let room = self.limits.each().saturating_sub(attached.count());
            let devices_of = targets.devices_of(&namespace).to_vec();
            let missing: Vec<_> = devices_of
                .into_iter()
                .filter(|it| !self.contains(it))
                .collect();
            let fits = match missing.len() <= room {
                true => Ok(()),
                false => Err(self.limits.error(namespace.name())),
            };
            targets.retries.record(Step::FitDevices(id), fits, changes);
            let is_due = |device: &Device| targets.retries.is_due(&attach_to(device));
            let due = missing.into_iter().filter(is_due).take(room);
            queue.extend(due.enumerate());
        }
        queue.sort_by_key(|(turn, _)| *turn);
        queue.into_iter().map(|(_, device)| device).collect()
    }

    /// Detaches the egress programs.
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

fn is_device_gone(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV)
}

/// The programs at one device.
#[derive(Debug)]
pub(crate) struct DeviceAttachment {
    pub(crate) device: Device,
    /// Its key in the programs' counts.
    key: DeviceKey,
    window: SegmentWindow,
    links: Links,
}

#[derive(Debug)]
enum Links {
    Tcx {
        dsack: OwnedFd,
        /// `None` after [`DeviceAttachment::stop_bundling`].
        egress: Option<OwnedFd>,
    },
    Clsact(Clsact),
}

impl DeviceAttachment {
    /// Attaches the programs to a device: tcx links before existing programs, filters after them.
    pub(crate) fn attach(programs: &Programs, device: &Device) -> Result<Self, Error> {
        let header = device.link_header.ok_or_else(|| Error::UnknownLinkHeader {
            name: device.to_string(),
        })?;
        let pair = programs.for_link_header(header);
        let (dsack, egress) = (pair.dsack.as_fd(), pair.egress.as_fd());
        let index = device.index;
        let by_links = || -> io::Result<Links> {
            Ok(Links::Tcx {
                dsack: link::attach(dsack, &AttachPoint::Ingress(index))?,
                egress: Some(link::attach(egress, &AttachPoint::Egress(index))?),
            })
        };
        let links = match programs.hook {
            Hook::Tcx => device.namespace.enter(by_links)?,
            Hook::Clsact => Ok(Links::Clsact(Clsact::attach(device, dsack, egress)?)),
        };
        let links = links.map_err(|error| Error::at_device(device, programs.hook, error))?;
        let key = (device.namespace.cookie()?, index);
        device_segments::reset(&programs.device_segments, key);
        Ok(Self {
            device: device.clone(),
            key,
            window: SegmentWindow::default(),
            links,
        })
    }

    /// False if the device was removed; another one may have its interface index.
    pub(crate) fn is_attached(&self) -> bool {
        match &self.links {
            Links::Tcx { dsack, egress } => {
                let mut links = egress.iter().chain([dsack]);
                links.all(|link| link::has_device(link.as_fd()))
            }
            Links::Clsact(clsact) => clsact.is_attached(),
        }
    }

    /// The id of another tcx program that runs before one of pillion's. The calling thread is in the
    /// device's namespace.
    fn preceding_program(&self) -> Option<u32> {
        let Links::Tcx { dsack, egress } = &self.links else {
            return None;
        };
        let mut links = egress.iter().chain([dsack]);
        links.find_map(|link| link::preceding_program(link.as_fd()))
    }

    /// As [`DeviceAttachment::preceding_program`], from any namespace.
    fn preceded_by(&self) -> Option<u32> {
        let namespace = &self.device.namespace;
        let preceding = namespace.enter(|| self.preceding_program());
        preceding.ok().flatten()
    }

    /// The error of a device whose program does not see most segments.
    fn bypassed(&self) -> Error {
        Error::Bypassed {
            device: self.device.to_string(),
            program: self.preceded_by(),
        }
    }

    /// True if the programs are clsact's filters, which others can remove while the device lives.
    pub(crate) fn is_clsact(&self) -> bool {
        matches!(self.links, Links::Clsact(_))
    }

    /// Detaches from the device's egress, but not from its ingress.
    pub(crate) fn stop_bundling(&mut self) {
        match &mut self.links {
            Links::Tcx { egress, .. } => egress.take().into_iter().for_each(link::detach),
            Links::Clsact(clsact) => clsact.stop_bundling(),
        }
    }

    pub(crate) fn detach(self) {
        match self.links {
            Links::Tcx { dsack, egress } => {
                egress.into_iter().chain([dsack]).for_each(link::detach);
            }
            Links::Clsact(clsact) => drop(clsact),
        }
    }
}

/// File descriptors that one device takes, by tcx.
const FDS_PER_DEVICE: usize = 2;

/// File descriptors of a named namespace: its file and its event socket.
const FDS_PER_NAMESPACE: usize = 2;

/// File descriptors reserved for other work: listing devices, reloading rules, reviewing
/// connections.
const RESERVED_FDS: usize = 24;

/// The limit of devices: each link takes a file descriptor, and a process is limited by
/// `RLIMIT_NOFILE`. Each namespace gets an equal share of the free descriptors, so none can exhaust
/// another's.
#[derive(Debug)]
pub(crate) struct DeviceLimits {
    each: usize,
    limit: usize,
}

impl DeviceLimits {
    /// The share of each namespace, after subtracting descriptors that this process uses for other
    /// purposes than `devices`.
    pub(crate) fn for_process(hook: Hook, namespaces: usize, devices: usize) -> Self {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(usize::MAX, |(soft, _)| {
            usize::try_from(soft).unwrap_or(usize::MAX)
        });
        // One of them reads the list.
        let used = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let used = used.saturating_sub(FDS_PER_DEVICE * devices);
        let each = match hook {
            Hook::Tcx => limits(limit, used, namespaces),
            // Filters take no descriptors.
            Hook::Clsact => usize::MAX,
        };
        Self { each, limit }
    }

    /// Maximum number of devices per namespace.
    pub(crate) fn each(&self) -> usize {
        self.each
    }

    pub(crate) fn error(&self, namespace: Option<&str>) -> Error {
        Error::TooManyDevices {
            namespace: namespace.map(str::to_owned),
            max: self.each,
            limit: self.limit,
        }
    }
}

fn limits(limit: usize, used: usize, namespaces: usize) -> usize {
    let namespaces = namespaces.max(1);
    // Removed namespaces may return.
    let reserved = used + RESERVED_FDS + FDS_PER_NAMESPACE * namespaces;
    limit.saturating_sub(reserved) / FDS_PER_DEVICE / namespaces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_limit_is_equal_for_each_namespace() {
        assert_eq!(limits(1024, 40, 1), 479);
        assert_eq!(limits(1024, 40, 4), 119);
        assert!(
            40 + RESERVED_FDS + 4 * (FDS_PER_NAMESPACE + FDS_PER_DEVICE * limits(1024, 40, 4))
                <= 1024
        );
        assert_eq!(limits(40, 40, 1), 0);
        assert!(limits(usize::MAX, 40, 256) > 1_000_000);
    }
}
