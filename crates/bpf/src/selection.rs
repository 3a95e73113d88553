use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::followed_namespace::FollowedNamespace;
use crate::retry_state::RetryState;
use crate::{
    Change, Container, Containers, Device, Error, Hook, Namespace, NamespaceName, Namespaces,
    Scope, device,
};

/// How often names of network namespaces, and containers, are looked at: nothing tells of their end.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Which devices are bundled on, while devices come and go, and network namespaces with
/// them.
#[derive(Debug)]
pub struct Selection {
    pub(crate) names: Vec<OsString>,
    followed: Vec<FollowedNamespace>,
    /// Those with names like one with wildcards, and of containers, are followed while they are there.
    asked_for: Namespaces,
    containers: Containers,
    hook: Hook,
    news: Epoll,
    clock: TimerFd,
    pub(crate) troubles: RetryState<Step>,
}

/// What can fail while devices and namespaces are followed. Namespaces are by [`Namespace::id`], so
/// that a failure keeps none from ending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// To take the namespace that has this name.
    Take(NamespaceName),
    /// To list a namespace's devices.
    List(Option<u64>),
    /// To understand what the kernel says of each of a namespace's devices.
    Read(Option<u64>),
    /// To take in a namespace's new connections.
    Serve(Option<u64>),
    /// To take in the connections that a namespace has already.
    Review(Option<u64>),
    /// To have room for all devices of a namespace.
    Hold(Option<u64>),
    /// To attach to the device with this interface index.
    Attach(Option<u64>, u32),
    /// To stay attached to the cgroup.
    Stay,
    /// To count the connections.
    Count,
    /// To decide which share of the segments carries redundancy.
    Govern,
}

impl Selection {
    /// Selects the devices with these names, or, where none is named, all that are up but loopback;
    /// in the network namespaces asked for. A name stands for whatever has it at the time. `hook` is
    /// that of the programs.
    ///
    /// # Errors
    /// As [`NamespaceName::open`]; [`Error::System`] if the kernel's news of devices cannot
    /// be had.
    pub fn new(
        names: &[impl AsRef<OsStr>],
        asked_for: &Namespaces,
        hook: Hook,
    ) -> Result<Self, Error> {
        let mut followed = if asked_for.named.is_empty() {
            vec![FollowedNamespace::here(hook)?]
        } else {
            let plain = asked_for.plain();
            let followed = plain.map(|name| FollowedNamespace::named(name, hook));
            followed.collect::<Result<_, _>>()?
        };
        let containers = asked_for.containers();
        let there = asked_for.matched(containers.running()).into_iter();
        followed.extend(there.map(|name| FollowedNamespace::matched(name, hook)));
        let watched = || -> nix::Result<(Epoll, TimerFd)> {
            let news = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
            let clock = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
            let fds = followed
                .iter()
                .filter_map(|followed| Some(followed.now()?.news()));
            for fd in fds.chain([clock.as_fd()]) {
                news.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
            }
            Ok((news, clock))
        };
        let (news, clock) =
            watched().map_err(|errno| Error::system("watch the network devices", errno.into()))?;
        Ok(Self {
            names: names.iter().map(|name| name.as_ref().to_owned()).collect(),
            followed,
            asked_for: asked_for.clone(),
            containers,
            hook,
            news,
            clock,
            troubles: RetryState::new(),
        })
    }

    /// Names with wildcards that no network namespace is like now.
    pub fn unmatched(&self) -> impl Iterator<Item = &NamespaceName> {
        let patterns = self.asked_for.patterns();
        patterns.filter(|name| name.now().is_empty())
    }

    /// The containers that run, as of the last look; those that are asked for are among them.
    #[must_use]
    pub fn containers(&self) -> &[Container] {
        self.containers.running()
    }

    /// The containers that run, as of the last look, whose sockets cannot be told from others: they have
    /// cgroups of version 1 alone.
    #[must_use]
    pub fn containers_in_version_1(&self) -> &[Container] {
        self.containers.in_version_1()
    }

    /// What keeps containers that are asked for, or may be, from being found or entered, in words.
    pub fn unseen(&self) -> impl Iterator<Item = String> {
        let chosen = self.asked_for.chosen(self.containers.running());
        let hidden = chosen.filter(|it| it.is_hidden).map(|it| {
            format!(
                "no process of container {it} is seen from here: it takes the host's PID namespace \
                 (--pid=host, hostPID)"
            )
        });
        let forbidden = self.containers.forbidden().map(|path| {
            let path = path.display();
            format!("{path} may not be read: containers' names take root or CAP_DAC_READ_SEARCH")
        });
        hidden.chain(forbidden)
    }

    /// Follows the names that there are now like one with wildcards, and those of containers, and no
    /// longer those that were: a container that is called otherwise now is let go as one that ends.
    /// Gives what it has let go.
    fn match_names(&mut self) -> Vec<(Namespace, Change)> {
        let mut left = Vec::new();
        self.asked_for.look_for_containers(&mut self.containers);
        let there = self.asked_for.matched(self.containers.running());
        self.followed.retain_mut(|followed| {
            let is_there = followed.name().is_none_or(|name| there.contains(name));
            let is_kept = !followed.is_matched || is_there;
            if !is_kept {
                left.extend(followed.leave());
            }
            is_kept
        });
        for name in there {
            let is_followed = self.followed.iter().any(|it| it.name() == Some(&name));
            if !is_followed {
                self.followed.push(FollowedNamespace::awaited(name));
            }
        }
        left
    }

    /// Lets go of what no longer has its name, or one that is asked for.
    fn let_go(&mut self) -> Vec<(Namespace, Change)> {
        let mut left = self.match_names();
        left.extend(
            self.followed
                .iter_mut()
                .filter_map(FollowedNamespace::let_go),
        );
        left
    }

    /// The devices to begin with.
    ///
    /// # Errors
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

    /// The network namespaces where the devices are, and others may come.
    #[must_use]
    pub fn namespaces(&self) -> Vec<Namespace> {
        let mut namespaces: Vec<Namespace> = Vec::new();
        for followed in self.followed.iter().filter_map(FollowedNamespace::now) {
            if !namespaces.contains(&followed.namespace) {
                namespaces.push(followed.namespace.clone());
            }
        }
        namespaces
    }

    /// The scope of these network namespaces.
    pub(crate) fn scope(&self) -> Scope {
        match self.asked_for.is_own_alone() {
            true => Scope::ThisNamespace,
            false => Scope::Namespaces(self.namespaces()),
        }
    }

    /// What fails at present and is tried again, in words.
    pub fn failing(&self) -> impl Iterator<Item = &str> {
        self.troubles.said()
    }

    /// True if there need be no device yet: namespaces may come.
    pub(crate) fn may_be_empty(&self) -> bool {
        self.asked_for.may_come()
    }

    /// How many network namespaces there can be.
    pub(crate) fn namespace_count(&self) -> usize {
        /// Those that may come are left room for, as many at least.
        const TO_COME: usize = 64;
        let to_come = if self.may_be_empty() { TO_COME } else { 0 };
        self.followed.len().max(to_come)
    }

    /// A file descriptor that is readable when devices may have come, gone or changed, or something
    /// is to be tried again: [`Attachment::follow`](crate::Attachment::follow) then.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.0.as_fd()
    }

    /// Looks after the names of network namespaces, and after the devices of those that tell of
    /// changes; `is_attached` says which devices pillion is at. Returns the namespaces whose
    /// devices it has looked at.
    pub(crate) fn look(
        &mut self,
        is_attached: impl Fn(&Device) -> bool,
        changes: &mut Vec<Change>,
    ) -> Vec<Namespace> {
        let _ = self.clock.wait();
        for (namespace, gone) in self.let_go() {
            changes.push(gone);
            // Its devices are called after another name of it, if it has one.
            let by_others = self.followed.iter_mut();
            let by_others = by_others.filter_map(FollowedNamespace::now_mut);
            by_others
                .filter(|it| it.namespace == namespace)
                .for_each(|it| it.has_changed = true);
        }
        for followed in &mut self.followed {
            let Some(name) = followed.name().cloned() else {
                continue;
            };
            let step = Step::Take(name);
            if self.troubles.may_try(&step) {
                let register = |fd: BorrowedFd| {
                    let added = self.news.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0));
                    added.map_err(|errno| Error::system("watch the network devices", errno.into()))
                };
                let taken = followed.take(self.hook, register);
                let taken = self.troubles.outcome_of(step, taken, changes);
                changes.extend(taken.flatten());
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
        let (names, troubles) = (&self.names, &mut self.troubles);
        for followed in self
            .followed
            .iter_mut()
            .filter_map(FollowedNamespace::now_mut)
        {
            let id = followed.namespace.id();
            let (step, read) = (Step::List(id), Step::Read(id));
            let again = followed.has_changed && troubles.may_try(&step)
                || troubles.has(&read) && troubles.may_try(&read);
            if !followed.has_news() && !again {
                continue;
            }
            let devices = Device::list_in(&followed.namespace);
            let Some(devices) = troubles.outcome_of(step, devices, changes) else {
                continue;
            };
            let understood = match devices.unreadable {
                0 => Ok(()),
                count => Err(Error::Unreadable {
                    count,
                    namespace: followed.namespace.name().map(str::to_owned),
                }),
            };
            troubles.outcome_of(read, understood, changes);
            followed.has_changed = false;
            followed.wanted = devices.all;
            followed
                .wanted
                .retain(|device| device.is_meant(names) || names.is_empty() && is_attached(device));
            // What is part of another device sees no packet of this host's before that does.
            followed
                .wanted
                .sort_by_key(|device| (device.is_port, device.index));
            if !listed.contains(&followed.namespace) {
                listed.push(followed.namespace.clone());
            }
        }
        listed
    }

    /// Has the next look list the devices of these namespaces.
    pub(crate) fn look_again_at(&mut self, namespaces: &[Namespace]) {
        let followed = self.followed.iter_mut();
        let followed = followed.filter_map(FollowedNamespace::now_mut);
        followed
            .filter(|it| namespaces.contains(&it.namespace))
            .for_each(|it| it.has_changed = true);
    }

    /// The devices that pillion is to be attached to in a namespace, as far as is known.
    pub(crate) fn wanted(&self, namespace: &Namespace) -> &[Device] {
        let mut followed = self.followed.iter().filter_map(FollowedNamespace::now);
        let followed = followed.find(|followed| followed.namespace == *namespace);
        followed.map_or(&[], |followed| &followed.wanted)
    }

    /// Forgets what failed with what is no more.
    pub(crate) fn forget_troubles_of_the_gone(&mut self) {
        let all = &self.followed;
        let followed = |id: &Option<u64>| {
            let mut there = all.iter().filter_map(FollowedNamespace::now);
            there.find(|followed| followed.namespace.id() == *id)
        };
        self.troubles.retain(|step| match step {
            Step::Stay | Step::Count | Step::Govern => true,
            Step::Take(name) => all.iter().any(|it| it.name() == Some(name)),
            Step::List(id)
            | Step::Read(id)
            | Step::Serve(id)
            | Step::Review(id)
            | Step::Hold(id) => followed(id).is_some(),
            Step::Attach(id, index) => followed(id).is_some_and(|followed| {
                followed.wanted.iter().any(|device| device.index == *index)
            }),
        });
    }

    /// Sets the clock that wakes up when something is to be done without news: at once if there is
    /// `more` to do.
    pub(crate) fn set_clock(&self, more: bool) {
        /// The shortest time that wakes up; zero would be never.
        const AT_ONCE: Duration = Duration::from_nanos(1);
        let is_named = |followed: &FollowedNamespace| followed.name().is_some();
        let has_names = self.may_be_empty() || self.followed.iter().any(is_named);
        let now = Instant::now();
        // What is due and was not tried has to wait for something else.
        let retry = self.troubles.next();
        let retry = retry.map(|time| match time > now {
            true => time - now,
            false => LOOK_EVERY,
        });
        let waits = [
            more.then_some(AT_ONCE),
            has_names.then_some(LOOK_EVERY),
            retry,
        ];
        let _ = match waits.into_iter().flatten().min() {
            Some(wait) => {
                let wait = Expiration::OneShot(wait.into());
                self.clock.set(wait, TimerSetTimeFlags::empty())
            }
            None => self.clock.unset(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_with_a_name_is_forgotten_with_the_name() {
        let mut selection =
            Selection::new(&[] as &[&str], &Namespaces::default(), Hook::Tcx).unwrap();
        let name = NamespaceName::from(OsStr::new("pillion-test-gone"));
        let error = || Error::NotANamespace {
            name: "pillion-test-gone".to_owned(),
        };
        let followed = FollowedNamespace::awaited(name.clone());
        selection.followed.push(followed);
        let said = selection.troubles.failed(Step::Take(name), error());
        assert!(said.is_some());
        selection.forget_troubles_of_the_gone();
        assert_eq!(selection.failing().count(), 1);
        selection.followed.pop();
        selection.forget_troubles_of_the_gone();
        assert_eq!(selection.failing().count(), 0);
    }
}
