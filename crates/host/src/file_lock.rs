//! Files that one process has alone.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Locks a file or a folder for this process alone, as long as the result lives; the kernel lets go of
/// it when the process ends, however it ends.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if another process has locked it.
pub fn lock(file: File) -> io::Result<Flock<File>> {
    let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
    locked.map_err(|(_, errno): (_, Errno)| errno.into())
}

/// Whether it is this file, or this folder, that is at a path: another one may have come in its place.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if nothing is there.
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let identity = |it: Metadata| (it.dev(), it.ino());
    Ok(identity(fs::metadata(path)?) == identity(file.metadata()?))
}
