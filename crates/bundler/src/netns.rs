use std::io;
use std::os::fd::AsRawFd;

use crate::Error;

/// The kernel's cookie of the calling thread's network namespace.
pub(crate) fn cookie() -> Result<u64, Error> {
    let action = "find this network namespace's cookie";
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Unix,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )
    .map_err(|errno| Error::system(action, errno.into()))?;
    let mut cookie = 0u64;
    let mut length = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: the value and its length live on this stack and have the sizes stated.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok(cookie),
        _ => Err(Error::system(action, io::Error::last_os_error())),
    }
}
