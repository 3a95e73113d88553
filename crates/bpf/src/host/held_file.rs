//! A file or a folder that is held open: by this process alone, and still the one at its path.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_locked_is_locked_for_others_until_it_is_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let open = || File::open(folder.path()).unwrap();
        let held = lock(open()).unwrap();
        let refused = lock(open()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        lock(open()).unwrap();
    }

    #[test]
    fn what_was_removed_and_made_anew_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it");
        fs::create_dir(&path).unwrap();
        let held = File::open(&path).unwrap();
        assert!(is_at(&held, &path).unwrap());
        fs::remove_dir(&path).unwrap();
        let none = is_at(&held, &path).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        fs::create_dir(&path).unwrap();
        assert!(!is_at(&held, &path).unwrap());
    }
}
