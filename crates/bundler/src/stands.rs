//! Where the programs stand, and that they stand wherever they are wanted.

use std::time::{Duration, Instant};

use crate::selection::{Selection, Step};
use crate::share::Share;
use crate::stand::Stand;
use crate::{Change, Device, Error, Namespace, Programs};

/// All places at which the programs stand.
#[derive(Debug)]
pub(crate) struct Stands {
    all: Vec<Stand>,
    share: Share,
    /// Devices that were there when following began, and have to wait: they do not come.
    waiting: Vec<(Option<u64>, u32)>,
}

impl Stands {
    /// At these devices, whatever becomes of others.
    pub(crate) fn at(programs: &Programs, devices: &[Device]) -> Result<Self, Error> {
        let stands = devices.iter().map(|device| Stand::take(programs, device));
        Ok(Self {
            all: stands.collect::<Result<_, _>>()?,
            share: Share::of_this_process(programs.hook, 1),
            waiting: Vec::new(),
        })
    }

    /// At as many of a selection's devices as `patience` suffices for, one at least.
    pub(crate) fn begin(
        programs: &Programs,
        selection: &mut Selection,
        patience: Option<Duration>,
        changes: &mut Vec<Change>,
    ) -> Result<Self, Error> {
        let mut stands = Self {
            all: Vec::new(),
            share: Share::of_this_process(programs.hook, selection.places()),
            waiting: Vec::new(),
        };
        let mut refused = Vec::new();
        selection.look(|_| false, &mut refused);
        let more = stands.take(programs, selection, patience, &mut refused);
        // What is there at the start has not come.
        refused.retain(|change| matches!(change, Change::Refused(_)));
        let is_named = !selection.names.is_empty();
        // What nobody can read is not what was named.
        let matters = |change: &Change| match change {
            Change::Refused(error) => !matches!(error, Error::Unreadable { .. }),
            _ => false,
        };
        if (is_named || stands.all.is_empty())
            && let Some(first) = refused.iter().position(matters)
            && let Change::Refused(error) = refused.swap_remove(first)
        {
            return Err(error);
        }
        if stands.all.is_empty() {
            selection.devices()?;
            return Err(Error::NoDevice);
        }
        changes.append(&mut refused);
        for namespace in selection.namespaces() {
            let mut waiting = selection.wanted(&namespace).to_vec();
            waiting.retain(|device| {
                !stands.has(device) && !selection.troubles.has(&attach_to(device))
            });
            stands.waiting.extend(waiting.iter().map(identity));
        }
        selection.set_clock(more);
        Ok(stands)
    }

    pub(crate) fn has(&self, device: &Device) -> bool {
        self.all.iter().any(|stand| stand.device.is(device))
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = &Device> {
        self.all.iter().map(|stand| &stand.device)
    }

    /// Leaves devices and namespaces that are gone; the devices of those `looked` at are known
    /// as they are now.
    pub(crate) fn leave_the_gone(
        &mut self,
        selection: &mut Selection,
        looked: &[Namespace],
        changes: &mut Vec<Change>,
    ) {
        let namespaces = selection.namespaces();
        for mut stand in std::mem::take(&mut self.all) {
            let namespace = &stand.device.namespace;
            if !namespaces.contains(namespace) {
                // With a namespace, all of its devices go.
                stand.leave();
                continue;
            }
            if !looked.contains(namespace) {
                self.all.push(stand);
                continue;
            }
            let mut wanted = selection.wanted(namespace).iter();
            match wanted.find(|device| device.is(&stand.device)).cloned() {
                Some(device) if stand.holds() => {
                    stand.device = device;
                    self.all.push(stand);
                }
                Some(device) if stand.is_clsact() => {
                    let taken_away = Error::TakenAway {
                        device: device.to_string(),
                    };
                    let step = attach_to(&device);
                    let said = selection.troubles.failed(step, taken_away);
                    changes.extend(said.map(Change::Refused));
                    stand.leave();
                }
                _ => {
                    changes.push(Change::Gone(stand.device.to_string()));
                    stand.leave();
                }
            }
        }
    }

    /// Takes stands where they are wanted, until `patience` ends: each can take the kernel
    /// tens of milliseconds. True if more are to be taken then.
    pub(crate) fn take(
        &mut self,
        programs: &Programs,
        selection: &mut Selection,
        patience: Option<Duration>,
        changes: &mut Vec<Change>,
    ) -> bool {
        let begun = Instant::now();
        for (number, device) in self.to_take(selection, changes).into_iter().enumerate() {
            if number > 0 && patience.is_some_and(|patience| begun.elapsed() >= patience) {
                return true;
            }
            let stand = match Stand::take(programs, &device) {
                // News of its end is on the way.
                Err(Error::System { source, .. }) if has_no_device(&source) => continue,
                taken => selection
                    .troubles
                    .outcome_of(attach_to(&device), taken, changes),
            };
            if let Some(stand) = stand {
                self.all.push(stand);
                let identity = identity(&device);
                if !self.waiting.contains(&identity) {
                    changes.push(Change::Come(device.to_string()));
                }
                self.waiting.retain(|waiting| *waiting != identity);
            }
        }
        false
    }

    /// Devices without a stand for which there is room, of each namespace in turn.
    fn to_take(&self, selection: &mut Selection, changes: &mut Vec<Change>) -> Vec<Device> {
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

    pub(crate) fn leave(&mut self) {
        self.all.drain(..).for_each(Stand::leave);
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
