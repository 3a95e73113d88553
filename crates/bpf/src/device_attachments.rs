//! The programs at their devices, and that they are attached wherever they are wanted.

use std::time::{Duration, Instant};

use crate::device_attachment::DeviceAttachment;
use crate::selection::{Selection, Step};
use crate::share::Share;
use crate::{Change, Device, Error, Namespace, Programs};

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
