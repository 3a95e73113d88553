//! Locks on folders, or on files that represent them. The kernel releases a lock when its process
//! exits, so other processes recognise folders of killed processes.

use std::fs::File;
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use pillion_bpf::host::atomic_file;

use crate::Error;

/// A held lock; `None` if the file system does not support locks.
pub type RunLock = Option<Flock<File>>;

/// Locks a folder or file without waiting.
///
/// # Errors
///
/// [`io::ErrorKind::WouldBlock`] if another process holds the lock.
pub(crate) fn lock(folder: &Path) -> io::Result<RunLock> {
    match atomic_file::lock(File::open(folder)?) {
        Err(error) if lacks_locks(&error) => Ok(None),
        held => Ok(Some(held?)),
    }
}

/// Locks a folder or file; `resource` is the word for the error.
///
/// # Errors
///
/// [`Error::Busy`] if another process holds the lock; [`Error::File`].
pub(crate) fn lock_or_busy(resource: &'static str, folder: &Path) -> Result<RunLock, Error> {
    lock(folder).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Error::Busy {
            path: folder.to_owned(),
            resource,
        },
        _ => Error::file(folder)(error),
    })
}

/// Waits until no other process creates or checks folders in this one. Otherwise a folder that was
/// just created, but is not yet locked, would count as abandoned. `None` if the file system does
/// not support locks.
pub(crate) fn lock_parent(parent: &Path) -> io::Result<RunLock> {
    let parent = match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    };
    let mut folder = File::open(parent)?;
    loop {
        match Flock::lock(folder, FlockArg::LockExclusive) {
            Err((same, Errno::EINTR)) => folder = same,
            locked => return Ok(locked.ok()),
        }
    }
}

fn lacks_locks(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    let unsupported = [Errno::ENOLCK, Errno::EOPNOTSUPP, Errno::ENOSYS];
    errno.is_some_and(|errno| unsupported.contains(&errno))
}
