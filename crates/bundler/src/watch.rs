use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Wakes up when devices of the network namespace in which it was made come, go or change.
#[derive(Debug)]
pub(crate) struct Watch {
    socket: Socket,
}

impl Watch {
    pub(crate) fn begin() -> io::Result<Self> {
        const LINKS: u32 = libc::RTMGRP_LINK.cast_unsigned();
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, LINKS))?;
        socket.set_non_blocking(true)?;
        Ok(Self { socket })
    }

    /// Readable while there are changes that were not taken note of.
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
