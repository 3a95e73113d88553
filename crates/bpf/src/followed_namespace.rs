use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::{Change, Device, Error, Hook, Namespace, NamespaceName};

/// A network namespace whose devices are followed. Its name may later refer to another namespace.
#[derive(Debug)]
pub(crate) struct FollowedNamespace {
    name: Option<NamespaceName>,
    /// True if the name was found by a pattern or container: dropped when the name disappears.
    pub(crate) is_matched: bool,
    current: Option<CurrentNamespace>,
}

/// The namespace that has the name now, and the state of its devices.
#[derive(Debug)]
pub(crate) struct CurrentNamespace {
    pub(crate) namespace: Namespace,
    device_events: DeviceEvents,
    /// True if the namespace's devices have changed since they were listed.
    pub(crate) has_changed: bool,
    /// The devices to attach to.
    pub(crate) devices: Vec<Device>,
}

impl FollowedNamespace {
    /// Follows the calling thread's network namespace.
    pub(crate) fn own(hook: Hook) -> Result<Self, Error> {
        Ok(Self {
            name: None,
            is_matched: false,
            current: Some(CurrentNamespace::start(Namespace::default(), hook)?),
        })
    }

    pub(crate) fn named(name: &NamespaceName, hook: Hook) -> Result<Self, Error> {
        let name = name.resolved();
        Ok(Self {
            current: Some(CurrentNamespace::start(name.open()?, hook)?),
            name: Some(name),
            is_matched: false,
        })
    }

    /// Follows a matched name; [`FollowedNamespace::open`] opens it later.
    pub(crate) fn pending(name: NamespaceName) -> Self {
        Self {
            name: Some(name),
            is_matched: true,
            current: None,
        }
    }

    /// As [`FollowedNamespace::pending`], but opens the namespace immediately if possible.
    pub(crate) fn matched(name: NamespaceName, hook: Hook) -> Self {
        let current = name
            .open()
            .and_then(|it| CurrentNamespace::start(it, hook))
            .ok();
        Self {
            current,
            ..Self::pending(name)
        }
    }

    pub(crate) fn name(&self) -> Option<&NamespaceName> {
        self.name.as_ref()
    }

    pub(crate) fn current(&self) -> Option<&CurrentNamespace> {
        self.current.as_ref()
    }

    pub(crate) fn current_mut(&mut self) -> Option<&mut CurrentNamespace> {
        self.current.as_mut()
    }

    /// Releases a namespace that lost its name; returns both.
    pub(crate) fn release_gone(&mut self) -> Option<(Namespace, Change)> {
        let (name, current) = (self.name.as_ref()?, self.current.as_ref()?);
        if name.is_current(&current.namespace) {
            return None;
        }
        self.release()
    }

    /// Releases the namespace unconditionally.
    pub(crate) fn release(&mut self) -> Option<(Namespace, Change)> {
        let name = self.name.as_ref()?.to_string();
        Some((self.current.take()?.namespace, Change::Detached(name)))
    }

    /// Opens the namespace that has the name now, if none is open yet; `register` receives the file
    /// descriptor for its device events.
    pub(crate) fn open(
        &mut self,
        hook: Hook,
        register: impl FnOnce(BorrowedFd) -> Result<(), Error>,
    ) -> Result<Option<Change>, Error> {
        let Some(name) = self.name.as_ref().filter(|_| self.current.is_none()) else {
            return Ok(None);
        };
        if !name.may_reappear() {
            return Ok(None);
        }
        let namespace = match name.open() {
            // A namespace that is being created cannot be entered yet.
            Err(Error::UnknownNamespace { .. } | Error::NotANamespace { .. }) => return Ok(None),
            opened => opened?,
        };
        let followed = CurrentNamespace::start(namespace, hook)?;
        register(followed.events_fd())?;
        self.current = Some(followed);
        Ok(Some(Change::Attached(name.to_string())))
    }
}

impl CurrentNamespace {
    fn start(namespace: Namespace, hook: Hook) -> Result<Self, Error> {
        let device_events = namespace
            .enter(|| DeviceEvents::start(hook))?
            .map_err(|error| Error::system("subscribe to network device events", error))?;
        Ok(Self {
            namespace,
            device_events,
            has_changed: true,
            devices: Vec::new(),
        })
    }

    /// A file descriptor that is readable when the namespace's devices have changed.
    pub(crate) fn events_fd(&self) -> BorrowedFd<'_> {
        self.device_events.as_fd()
    }

    /// Reads pending events of the devices; true if there were any.
    pub(crate) fn has_events(&mut self) -> bool {
        let any = self.device_events.drain();
        self.has_changed |= any;
        any
    }
}

/// Netlink socket of a network namespace: readable after changes of its devices and, with
/// [`Hook::Clsact`], of their filters.
#[derive(Debug)]
pub(crate) struct DeviceEvents {
    socket: Socket,
}

impl DeviceEvents {
    pub(crate) fn start(hook: Hook) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.add_membership(libc::RTNLGRP_LINK)?;
        if hook == Hook::Clsact {
            socket.add_membership(libc::RTNLGRP_TC)?;
        }
        socket.set_non_blocking(true)?;
        Ok(Self { socket })
    }

    /// A file descriptor that is readable while events are pending.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket stays open as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }

    /// Reads all pending events; false if there were none. Their content is ignored, because some
    /// may be lost (ENOBUFS): list the devices after this call.
    pub(crate) fn drain(&self) -> bool {
        let mut byte = Vec::with_capacity(1);
        let mut any = false;
        loop {
            byte.clear();
            match self.socket.recv(&mut byte, libc::MSG_TRUNC) {
                Ok(_) => any = true,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => any = true,
                Err(_) => return any,
            }
        }
    }
}
