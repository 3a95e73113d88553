//! Network namespaces, by files that refer to them.

use std::io;
use std::os::fd::AsFd;
use std::thread;

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::host::socket_option;

/// Moves the calling thread into the network namespace that a file refers to.
///
/// # Errors
/// The kernel's: EINVAL where the file refers to something else, EPERM.
pub fn join(namespace: impl AsFd) -> io::Result<()> {
    Ok(setns(namespace, CloneFlags::CLONE_NEWNET)?)
}

/// Runs `work` in the network namespace that a file refers to, in a thread of its own, so that the
/// calling thread stays where it is.
///
/// # Errors
/// As [`join`].
pub fn enter<T: Send>(
    namespace: impl AsFd + Send,
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, || {
            join(namespace)?;
            Ok(work())
        })?;
        let failed = |_| Err(io::Error::other("the thread failed"));
        thread.join().unwrap_or_else(failed)
    })
}

/// The kernel's cookie of the calling thread's network namespace, which no second one will ever
/// have (`SO_NETNS_COOKIE`, Linux 5.14).
///
/// # Errors
/// The kernel's.
pub fn cookie() -> io::Result<u64> {
    let kind = SockType::Datagram;
    let socket = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None)?;
    let cookie = socket_option::get(socket, (libc::SOL_SOCKET, libc::SO_NETNS_COOKIE))?;
    Ok(u64::from_ne_bytes(cookie))
}
