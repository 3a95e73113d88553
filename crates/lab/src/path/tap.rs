//! A TAP device: a network device whose other end is this process.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
};

use crate::path::PathError;

/// The most bytes a frame can have: the largest MTU, the Ethernet header and a VLAN tag.
pub(crate) const MAX_FRAME: usize = 65_521 + 14 + 4;

const MODE: libc::c_int = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_TUN_EXCL;

/// A TAP device that lasts as long as this value.
///
/// The kernel segments and checksums what it sends here, so every frame is one packet of the wire.
#[derive(Debug)]
pub struct Tap {
    name: String,
    file: File,
}

impl Tap {
    /// Creates a device in the network namespace of the calling thread. Moving it to another
    /// namespace, its address, its MTU and its state are the caller's, by `ip`.
    ///
    /// Fails when the name is not one for a device or is taken, when `/dev/net/tun` is missing,
    /// or without the right to create devices (`CAP_NET_ADMIN`).
    pub fn open(name: &str) -> Result<Self, PathError> {
        let request = request(name)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .map_err(PathError::Tun)?;
        create(&file, &request).map_err(|cause| PathError::Create {
            name: name.to_owned(),
            cause,
        })?;
        Ok(Self {
            name: name.to_owned(),
            file,
        })
    }

    /// The name the device was created with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one frame that the kernel sent, or `None` when none waits.
    pub(crate) fn read(&self, frame: &mut [u8; MAX_FRAME]) -> io::Result<Option<usize>> {
        loop {
            match (&self.file).read(frame) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Hands one frame to the kernel as received.
    pub(crate) fn write(&self, frame: &[u8]) -> io::Result<()> {
        (&self.file).write(frame).map(drop)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn request(name: &str) -> Result<libc::ifreq, PathError> {
    let allowed = |byte: u8| byte > b' ' && byte != 0x7f && !b"/:%".contains(&byte);
    if !(1..libc::IFNAMSIZ).contains(&name.len()) || !name.bytes().all(allowed) {
        return Err(PathError::Name(name.to_owned()));
    }
    // SAFETY: ifreq is plain integers and unions of them, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    // The flags are 16 bits; IFF_TUN_EXCL is the highest of them, the sign of a short.
    request.ifr_ifru.ifru_flags = MODE as libc::c_short;
    Ok(request)
}

fn create(tun: &File, request: &libc::ifreq) -> io::Result<()> {
    let mut request = *request;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives across the call.
    let result = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_kernel_would_refuse_or_change_are_refused() {
        for name in ["", "tap%d", "a/b", "a b", "a:b", "a\0b", "sixteen-bytes-ab"] {
            assert!(matches!(Tap::open(name), Err(PathError::Name(_))), "{name}");
        }
    }
}
