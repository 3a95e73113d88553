//! Folders that a process is at work in, or files that stand for them: held as long as it lives, so that
//! others can tell those that one left which was killed.

use std::fs::File;
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use pillion_bpf::host::atomic_file;

use crate::Error;

/// A folder, held; `None` where the file system has no locks.
pub type Held = Option<Flock<File>>;

/// Holds a folder, or a file.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if another process does.
pub(crate) fn hold(folder: &Path) -> io::Result<Held> {
    match atomic_file::lock(File::open(folder)?) {
        Err(error) if has_no_locks(&error) => Ok(None),
        held => Ok(Some(held?)),
    }
}

/// Holds a folder, or a file, in which `what` is made.
///
/// # Errors
/// [`Error::Busy`] if another process does; [`Error::File`].
pub(crate) fn hold_for(what: &'static str, folder: &Path) -> Result<Held, Error> {
    hold(folder).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Error::Busy {
            path: folder.to_owned(),
            what,
        },
        _ => Error::file(folder)(error),
    })
}

/// Waits until no other process makes a folder in this one, or looks which of them are held: so none
/// takes one for left that is about to be held. `None` where that cannot be told.
pub(crate) fn turn(parent: &Path) -> io::Result<Held> {
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

fn has_no_locks(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    let none = [Errno::ENOLCK, Errno::EOPNOTSUPP, Errno::ENOSYS];
    errno.is_some_and(|errno| none.contains(&errno))
}
