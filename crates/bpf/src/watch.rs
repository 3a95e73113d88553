use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};

use crate::Hook;

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
