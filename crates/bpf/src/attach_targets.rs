use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use pillion_stats::names::escaped;

use crate::followed_namespace::FollowedNamespace;
use crate::retry_state::RetryState;
use crate::{
    Change, Container, Containers, Device, Error, Hook, Namespace, NamespaceName, Namespaces,
    Scope, device,
};

/// Interval between checks of network namespace names and containers, which cause no events.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The devices to attach to and their network namespaces, both requested by name, pattern or
/// container. Follows them as they appear, change and disappear.
#[derive(Debug)]
pub struct AttachTargets {
    pub(crate) names: Vec<OsString>,
    followed: Vec<FollowedNamespace>,
    /// Namespaces matched by patterns and containers are followed while they exist.
    requested: Namespaces,
    containers: Containers,
    hook: Hook,
    events: Epoll,
    timer: TimerFd,
    pub(crate) retries: RetryState<Step>,
}

/// Steps that can fail while devices and namespaces are followed. Namespaces are identified by
/// [`Namespace::id`], so that a failure does not keep one alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Open the namespace that has this name.
    OpenNamespace(NamespaceName),
    /// List a namespace's devices.
    ListDevices(Option<u64>),
    /// Parse the kernel's messages about a namespace's devices.
    ParseDevices(Option<u64>),
    /// Add a namespace to the scope, so that its new connections are covered.
    AddNamespace(Option<u64>),
    /// Apply the rules to a namespace's existing connections.
    Review(Option<u64>),
    /// Find descriptors for all devices of a namespace.
    FitDevices(Option<u64>),
    /// Attach to the device with this interface index.
    Attach(Option<u64>, u32),
    /// See the segments for the device with this interface index.
    SeeSegments(Option<u64>, u32),
    /// Stay attached to the cgroup.
    StayAttached,
    /// Count the taken slots.
    CountSlots,
    /// Decide which share of segments may carry redundancy.
    Govern,
}

impl AttachTargets {
    /// Follows the devices with these names in the requested network namespaces; without names, all
    /// devices that are up, except loopback. A name may refer to another device later. `hook` is
    /// the programs' hook.
    ///
    /// # Errors
    ///
    /// As [`NamespaceName::open`]; [`Error::System`] if device events are unavailable.
    pub fn new(
        names: &[impl AsRef<OsStr>],
        requested: &Namespaces,
        hook: Hook,
    ) -> Result<Self, Error> {
        let mut followed = if requested.named.is_empty() {
            vec![FollowedNamespace::own(hook)?]
        } else {
            let exact = requested.exact();
            let followed = exact.map(|name| FollowedNamespace::named(name, hook));
            followed.collect::<Result<_, _>>()?
        };
        let containers = requested.containers();
        let there = requested.matched(containers.running()).into_iter();
        followed.extend(there.map(|name| FollowedNamespace::matched(name, hook)));
        let watch_devices = || -> nix::Result<(Epoll, TimerFd)> {
            let events = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
            let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
            let fds = followed
                .iter()
                .filter_map(|followed| Some(followed.current()?.events_fd()));
            for fd in fds.chain([timer.as_fd()]) {
                events.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
            }
            Ok((events, timer))
        };
        let (events, timer) = watch_devices()
            .map_err(|errno| Error::system("subscribe to network device events", errno.into()))?;
        Ok(Self {
            names: names.iter().map(|name| name.as_ref().to_owned()).collect(),
            followed,
            requested: requested.clone(),
            containers,
            hook,
            events,
            timer,
            retries: RetryState::new(),
        })
    }

    /// Why names of devices, and names of namespaces with wildcards, match nothing now, in words.
    pub fn unmatched(&self) -> impl Iterator<Item = String> {
        let followed = self.followed.iter().filter_map(FollowedNamespace::current);
        let followed: Vec<_> = followed.collect();
        let mut missing = self.names.clone();
        // Without a namespace, that reason says enough.
        missing.retain(|name| {
            let mut devices = followed.iter().flat_map(|it| &it.devices);
            !followed.is_empty() && !devices.any(|it| it.has_name(name))
        });
        let missing = missing.into_iter().map(|name| {
            let name = escaped(&name);
            format!("no network device `{name}` exists: nothing is bundled there")
        });
        let patterns = self.requested.patterns();
        let unmatched = patterns.filter(|name| name.expand().is_empty());
        let unmatched = unmatched.map(|name| match name.unreadable_folder() {
            None => format!("no {name} exists: nothing is covered there"),
            Some(folder) => format!(
                "{folder} is not readable, so that no {name} is found; run as root, or with \
                 CAP_DAC_READ_SEARCH",
                folder = folder.display()
            ),
        });
        missing.chain(unmatched)
    }

    /// The running containers, as of the last refresh, including the requested ones.
    #[must_use]
    pub fn containers(&self) -> &[Container] {
        self.containers.running()
    }

    /// The containers of the last refresh, with those that rules cannot match.
    #[must_use]
    pub fn container_state(&self) -> &Containers {
        &self.containers
    }

    /// The reasons why requested containers cannot be found or entered, in words.
    pub fn unseen(&self) -> impl Iterator<Item = String> {
        let chosen = self.requested.chosen(self.containers.running());
        let hidden = chosen.filter(|it| it.is_hidden).map(|it| {
            format!(
                "no process of container {it} is visible: run pillion in the host's PID namespace \
                 (--pid=host, hostPID)"
            )
        });
        hidden.chain(self.containers.unreadable_warning())
    }

    /// Follows the names that match patterns or containers now, and releases the others. A renamed
    /// container is released as if it had ended. Returns the released ones.
    fn update_matches(&mut self) -> Vec<(Namespace, Change)> {
        let mut released = Vec::new();
        self.requested.find_containers(&mut self.containers);
        let there = self.requested.matched(self.containers.running());
        self.followed.retain_mut(|followed| {
            let is_there = followed.name().is_none_or(|name| there.contains(name));
            let is_retained = !followed.is_matched || is_there;
            if !is_retained {
                released.extend(followed.release());
            }
            is_retained
        });
        for name in there {
            let is_followed = self.followed.iter().any(|it| it.name() == Some(&name));
            if !is_followed {
                self.followed.push(FollowedNamespace::pending(name));
            }
        }
        released
    }

    /// Releases namespaces that lost their name, or are no longer requested.
    fn release_gone(&mut self) -> Vec<(Namespace, Change)> {
        let mut released = self.update_matches();
        released.extend(
            self.followed
                .iter_mut()
                .filter_map(FollowedNamespace::release_gone),
        );
        released
    }

    /// The initial devices.
    ///
    /// # Errors
    ///
    /// As [`Device::select`].
    pub fn devices(&self) -> Result<Vec<Device>, Error> {
        let mut known = Vec::new();
        for namespace in self.namespaces() {
            known.extend(Device::list_in(&namespace)?.all);
        }
        match device::select(known, &self.names) {
            Err(Error::NoDevice | Error::UnknownDevice { .. }) if self.may_be_empty() => {
                Ok(Vec::new())
            }
            selected => selected,
        }
    }

    /// The open network namespaces, without duplicates.
    #[must_use]
    pub fn namespaces(&self) -> Vec<Namespace> {
        let mut namespaces: Vec<Namespace> = Vec::new();
        for followed in self.followed.iter().filter_map(FollowedNamespace::current) {
            if !namespaces.contains(&followed.namespace) {
                namespaces.push(followed.namespace.clone());
            }
        }
        namespaces
    }

    /// The scope of these network namespaces.
    pub(crate) fn scope(&self) -> Scope {
        match self.requested.is_own_only() {
            true => Scope::ThisNamespace,
            false => Scope::Namespaces(self.namespaces()),
        }
    }

    /// The current failures, which are retried, in words.
    pub fn failing(&self) -> impl Iterator<Item = &str> {
        self.retries.failures()
    }

    /// True if the segments for a device do not reach its program.
    #[must_use]
    pub fn is_bypassed(&self) -> bool {
        let is_it = |step: &Step| matches!(step, Step::SeeSegments(..));
        self.retries.has_failed_step(is_it)
    }

    /// True if an empty device list is valid, because namespaces may appear later.
    pub(crate) fn may_be_empty(&self) -> bool {
        self.requested.may_grow()
    }

    /// Number of network namespaces to share the descriptor limit among.
    pub(crate) fn namespace_count(&self) -> usize {
        /// Minimum number of namespaces to reserve descriptors for.
        const EXPECTED_NAMESPACES: usize = 64;
        let expected = if self.may_be_empty() {
            EXPECTED_NAMESPACES
        } else {
            0
        };
        self.followed.len().max(expected)
    }

    /// A file descriptor that is readable when devices may have changed, or a retry is due. Call
    /// [`Attachment::follow`](crate::Attachment::follow) then.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.0.as_fd()
    }

    /// Updates the names of network namespaces, and the devices of those with events; `is_attached`
    /// is true for attached devices. Returns the namespaces whose devices were listed.
    pub(crate) fn refresh(
        &mut self,
        is_attached: impl Fn(&Device) -> bool,
        changes: &mut Vec<Change>,
    ) -> Vec<Namespace> {
        let _ = self.timer.wait();
        for (namespace, gone) in self.release_gone() {
            changes.push(gone);
            // If the namespace has another name, its devices are listed again under that one.
            let other_names = self.followed.iter_mut();
            let other_names = other_names.filter_map(FollowedNamespace::current_mut);
            other_names
                .filter(|it| it.namespace == namespace)
                .for_each(|it| it.has_changed = true);
        }
        for followed in &mut self.followed {
            let Some(name) = followed.name().cloned() else {
                continue;
            };
            let step = Step::OpenNamespace(name);
            if self.retries.is_due(&step) {
                let register = |fd: BorrowedFd| {
                    let added = self.events.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0));
                    added.map_err(|errno| {
                        Error::system("subscribe to network device events", errno.into())
                    })
                };
                let opened = followed.open(self.hook, register);
                let opened = self.retries.record(step, opened, changes);
                changes.extend(opened.flatten());
            }
        }
        self.list(is_attached, changes)
    }

    fn list(
        &mut self,
        is_attached: impl Fn(&Device) -> bool,
        changes: &mut Vec<Change>,
    ) -> Vec<Namespace> {
        let mut listed: Vec<Namespace> = Vec::new();
        let (names, retries) = (&self.names, &mut self.retries);
        for followed in self
            .followed
            .iter_mut()
            .filter_map(FollowedNamespace::current_mut)
        {
            let id = followed.namespace.id();
            let (step, read) = (Step::ListDevices(id), Step::ParseDevices(id));
            let again = followed.has_changed && retries.is_due(&step)
                || retries.has_failed(&read) && retries.is_due(&read);
            if !followed.has_events() && !again {
                continue;
            }
            let devices = Device::list_in(&followed.namespace);
            let Some(devices) = retries.record(step, devices, changes) else {
                continue;
            };
            let parsed = match devices.unreadable {
                0 => Ok(()),
                count => Err(Error::Unreadable {
                    count,
                    namespace: followed.namespace.name().map(str::to_owned),
                }),
            };
            retries.record(read, parsed, changes);
            followed.has_changed = false;
            followed.devices = devices.all;
            followed.devices.retain(|device| {
                device.is_selected(names) || names.is_empty() && is_attached(device)
            });
            // A device sees packets of this host before its ports do.
            followed
                .devices
                .sort_by_key(|device| (device.is_port, device.index));
            if !listed.contains(&followed.namespace) {
                listed.push(followed.namespace.clone());
            }
        }
        listed
    }

    /// Makes the next refresh list the devices of these namespaces.
    pub(crate) fn mark_changed(&mut self, namespaces: &[Namespace]) {
        let followed = self.followed.iter_mut();
        let followed = followed.filter_map(FollowedNamespace::current_mut);
        followed
            .filter(|it| namespaces.contains(&it.namespace))
            .for_each(|it| it.has_changed = true);
    }

    /// The devices to attach to in a namespace, as of its last listing.
    pub(crate) fn devices_of(&self, namespace: &Namespace) -> &[Device] {
        let mut followed = self.followed.iter().filter_map(FollowedNamespace::current);
        let followed = followed.find(|followed| followed.namespace == *namespace);
        followed.map_or(&[], |followed| &followed.devices)
    }

    /// Forgets failures whose object no longer exists.
    pub(crate) fn forget_retries_of_gone(&mut self) {
        let all = &self.followed;
        let followed = |id: &Option<u64>| {
            let mut there = all.iter().filter_map(FollowedNamespace::current);
            there.find(|followed| followed.namespace.id() == *id)
        };
        self.retries.retain(|step| match step {
            Step::StayAttached | Step::CountSlots | Step::Govern => true,
            Step::OpenNamespace(name) => all.iter().any(|it| it.name() == Some(name)),
            Step::ListDevices(id)
            | Step::ParseDevices(id)
            | Step::AddNamespace(id)
            | Step::Review(id)
            | Step::FitDevices(id) => followed(id).is_some(),
            Step::Attach(id, index) | Step::SeeSegments(id, index) => {
                followed(id).is_some_and(|followed| {
                    followed.devices.iter().any(|device| device.index == *index)
                })
            }
        });
    }

    /// Sets the timer for work without events: immediately if there is `more` to do.
    pub(crate) fn set_timer(&self, more: bool) {
        /// The shortest timer; zero would disarm it.
        const IMMEDIATELY: Duration = Duration::from_nanos(1);
        let is_named = |followed: &FollowedNamespace| followed.name().is_some();
        let has_names = self.may_be_empty() || self.followed.iter().any(is_named);
        let now = Instant::now();
        // A due step that was not tried waits for another event.
        let retry = self.retries.next_retry();
        let retry = retry.map(|time| match time > now {
            true => time - now,
            false => POLL_INTERVAL,
        });
        let waits = [
            more.then_some(IMMEDIATELY),
            has_names.then_some(POLL_INTERVAL),
            retry,
        ];
        let _ = match waits.into_iter().flatten().min() {
            Some(wait) => {
                let wait = Expiration::OneShot(wait.into());
                self.timer.set(wait, TimerSetTimeFlags::empty())
            }
            None => self.timer.unset(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_removed_name_are_forgotten() {
        let mut targets =
            AttachTargets::new(&[] as &[&str], &Namespaces::default(), Hook::Tcx).unwrap();
        let name = NamespaceName::from(OsStr::new("pillion-test-gone"));
        let error = || Error::NotANamespace {
            name: "pillion-test-gone".to_owned(),
        };
        let followed = FollowedNamespace::pending(name.clone());
        targets.followed.push(followed);
        let failures = targets.retries.failed(Step::OpenNamespace(name), error());
        assert!(failures.is_some());
        targets.forget_retries_of_gone();
        assert_eq!(targets.failing().count(), 1);
        targets.followed.pop();
        targets.forget_retries_of_gone();
        assert_eq!(targets.failing().count(), 0);
    }
}
