use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::{Change, Device, Error, Hook, Namespace, NamespaceName};

/// A network namespace whose devices are followed. One that has a name may lose it, and
/// another one may get it.
#[derive(Debug)]
pub(crate) struct FollowedNamespace {
    name: Option<NamespaceName>,
    /// True if the name was found by one with wildcards, and is of no interest once it is gone.
    pub(crate) is_matched: bool,
    now: Option<Present>,
}

/// The namespace that has the name now, and what is known of its devices.
#[derive(Debug)]
pub(crate) struct Present {
    pub(crate) namespace: Namespace,
    watch: Watch,
    /// True if the namespace's devices have changed since they were listed.
    pub(crate) has_changed: bool,
    /// The devices that pillion is to be attached to.
    pub(crate) wanted: Vec<Device>,
}

impl FollowedNamespace {
    /// Follows the calling thread's network namespace.
    pub(crate) fn here(hook: Hook) -> Result<Self, Error> {
        Ok(Self {
            name: None,
            is_matched: false,
            now: Some(Present::begin(Namespace::default(), hook)?),
        })
    }

    pub(crate) fn named(name: &NamespaceName, hook: Hook) -> Result<Self, Error> {
        let name = name.settled();
        Ok(Self {
            now: Some(Present::begin(name.open()?, hook)?),
            name: Some(name),
            is_matched: false,
        })
    }

    /// Follows a name that was found by one with wildcards, once it can be taken.
    pub(crate) fn awaited(name: NamespaceName) -> Self {
        Self {
            name: Some(name),
            is_matched: true,
            now: None,
        }
    }

    /// The same, taken at once if it can be.
    pub(crate) fn matched(name: NamespaceName, hook: Hook) -> Self {
        let now = name.open().and_then(|it| Present::begin(it, hook)).ok();
        Self {
            now,
            ..Self::awaited(name)
        }
    }

    pub(crate) fn name(&self) -> Option<&NamespaceName> {
        self.name.as_ref()
    }

    pub(crate) fn now(&self) -> Option<&Present> {
        self.now.as_ref()
    }

    pub(crate) fn now_mut(&mut self) -> Option<&mut Present> {
        self.now.as_mut()
    }

    /// Lets go of a namespace that no longer has its name, which it gives.
    pub(crate) fn let_go(&mut self) -> Option<(Namespace, Change)> {
        let (name, now) = (self.name.as_ref()?, self.now.as_ref()?);
        if name.stands_for(&now.namespace) {
            return None;
        }
        self.leave()
    }

    /// Lets go of the namespace, whatever has become of it.
    pub(crate) fn leave(&mut self) -> Option<(Namespace, Change)> {
        let name = self.name.as_ref()?.to_string();
        Some((self.now.take()?.namespace, Change::Gone(name)))
    }

    /// Takes the namespace that has the name now, if none is taken yet; `register` is given the
    /// file descriptor that tells of its devices' changes.
    pub(crate) fn take(
        &mut self,
        hook: Hook,
        register: impl FnOnce(BorrowedFd) -> Result<(), Error>,
    ) -> Result<Option<Change>, Error> {
        let Some(name) = self.name.as_ref().filter(|_| self.now.is_none()) else {
            return Ok(None);
        };
        if !name.may_return() {
            return Ok(None);
        }
        let namespace = match name.open() {
            // One that is being made cannot be entered yet.
            Err(Error::UnknownNamespace { .. } | Error::NotANamespace { .. }) => return Ok(None),
            opened => opened?,
        };
        let followed = Present::begin(namespace, hook)?;
        register(followed.news())?;
        self.now = Some(followed);
        Ok(Some(Change::Come(name.to_string())))
    }
}

impl Present {
    fn begin(namespace: Namespace, hook: Hook) -> Result<Self, Error> {
        let watch = namespace
            .enter(|| Watch::begin(hook))?
            .map_err(|error| Error::system("watch the network devices", error))?;
        Ok(Self {
            namespace,
            watch,
            has_changed: true,
            wanted: Vec::new(),
        })
    }

    /// A file descriptor that is readable when the namespace's devices have changed.
    pub(crate) fn news(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// True if there is news of the devices, which it takes note of.
    pub(crate) fn has_news(&mut self) -> bool {
        let any = self.watch.take_note();
        self.has_changed |= any;
        any
    }
}

/// A socket that wakes up when devices of the network namespace in which it was made come, go or
/// change, or the filters at them, where pillion's are among these.
#[derive(Debug)]
pub(crate) struct Watch {
    socket: Socket,
}

impl Watch {
    pub(crate) fn begin(hook: Hook) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.add_membership(libc::RTNLGRP_LINK)?;
        if hook == Hook::Clsact {
            socket.add_membership(libc::RTNLGRP_TC)?;
        }
        socket.set_non_blocking(true)?;
        Ok(Self { socket })
    }

    /// A file descriptor that is readable while there are changes that were not taken note of.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket stays open as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }

    /// Takes note of all changes so far; false if there were none. What they were is not
    /// read, for some may be lost (ENOBUFS): the devices are to be listed after this.
    pub(crate) fn take_note(&self) -> bool {
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
