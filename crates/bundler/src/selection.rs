use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::place::Place;
use crate::{Device, Error, Namespace, NamespaceName};

/// How often names of network namespaces are looked at: nothing tells of their end.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Which devices are bundled on, while devices come and go, and network namespaces with
/// them.
#[derive(Debug)]
pub struct Selection {
    names: Vec<String>,
    places: Vec<Place>,
    news: Epoll,
    clock: TimerFd,
}

/// What has changed while pillion was at work, and an operator may want to know.
#[derive(Debug)]
pub enum Change {
    /// Bundling takes place there, too.
    Come(String),
    /// This one is no more, or is called otherwise now.
    Gone(String),
    /// Something has come, but the programs could not be attached.
    Refused(Error),
    /// There are as many connections as [`Policy::max_connections`](crate::Policy) allows.
    Full,
    /// All have found room again.
    Room,
}

impl Selection {
    /// The devices with these names, or, where none is named, all that are up but
    /// loopback; in the network namespaces named, or, where none is, in this one alone. A
    /// name stands for whatever has it at the time.
    ///
    /// # Errors
    /// As [`NamespaceName::open`]; [`Error::System`] if the kernel's news of devices cannot
    /// be had.
    pub fn new(names: Vec<String>, namespaces: &[NamespaceName]) -> Result<Self, Error> {
        let places = if namespaces.is_empty() {
            vec![Place::here()?]
        } else {
            let places = namespaces.iter().map(Place::named);
            places.collect::<Result<_, _>>()?
        };
        let watched = || -> nix::Result<(Epoll, TimerFd)> {
            let news = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
            let clock = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
            if !namespaces.is_empty() {
                let every = Expiration::Interval(LOOK_EVERY.into());
                clock.set(every, TimerSetTimeFlags::empty())?;
            }
            let fds = places.iter().filter_map(Place::news);
            for fd in fds.chain([clock.as_fd()]) {
                news.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
            }
            Ok((news, clock))
        };
        let (news, clock) =
            watched().map_err(|errno| Error::system("watch the network devices", errno.into()))?;
        Ok(Self {
            names,
            places,
            news,
            clock,
        })
    }

    /// Those to begin with.
    ///
    /// # Errors
    /// As [`Device::select`].
    pub fn devices(&self) -> Result<Vec<Device>, Error> {
        Device::select_in(&self.namespaces(), &self.names)
    }

    /// Where they are, and others may come.
    #[must_use]
    pub fn namespaces(&self) -> Vec<Namespace> {
        let mut namespaces: Vec<Namespace> = Vec::new();
        for namespace in self.places.iter().filter_map(Place::namespace) {
            if !namespaces.contains(namespace) {
                namespaces.push(namespace.clone());
            }
        }
        namespaces
    }

    /// Readable when devices may have come, gone or changed:
    /// [`Attachment::follow`](crate::Attachment::follow) then.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.0.as_fd()
    }

    /// Looks after the names of network namespaces; the second is true if devices have
    /// changed, too.
    pub(crate) fn take_note(&mut self) -> (Vec<Change>, bool) {
        let _ = self.clock.wait();
        let mut changes = Vec::new();
        let mut any = false;
        for place in &mut self.places {
            if let Some(change) = place.renew() {
                changes.push(change);
                any = true;
                if let Some(fd) = place.news() {
                    let event = EpollEvent::new(EpollFlags::EPOLLIN, 0);
                    if let Err(errno) = self.news.add(fd, event) {
                        let error = Error::system("watch the network devices", errno.into());
                        changes.push(Change::Refused(error));
                    }
                }
            }
            any |= place.take_note();
        }
        (changes, any)
    }

    /// Those of the selection that exist now; `attached` says which ones pillion is at. A
    /// device may be switched off and on again meanwhile.
    pub(crate) fn present(&self, attached: impl Fn(&Device) -> bool) -> Result<Vec<Device>, Error> {
        let mut present = Vec::new();
        for namespace in self.namespaces() {
            let mut devices = Device::list_in(&namespace)?;
            if self.names.is_empty() {
                devices.retain(|device| device.is_usable() || attached(device));
            } else {
                let index = |name: &String| Device::index(name);
                let index_all = || self.names.iter().filter_map(index).collect::<Vec<_>>();
                let named = namespace.enter(index_all)?;
                devices.retain(|device| named.contains(&device.index));
            }
            present.extend(devices);
        }
        Ok(present)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Come(name) => write!(f, "{name} has come: bundling there, too"),
            Self::Gone(name) => write!(f, "{name} has gone"),
            Self::Full => write!(
                f,
                "as many connections as --max-connections allows, in all or of one user: others \
                 stay plain"
            ),
            Self::Room => write!(f, "there is room for all connections again"),
            Self::Refused(error) => write!(f, "a device has come, but not bundled on: {error}"),
        }
    }
}
