//! Atomic replacement of a file: the old one remains until the new one is complete, and only one
//! process at a time writes it.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use tempfile::{NamedTempFile, TempPath};

/// Locks a file or a folder exclusively while the result lives; the kernel releases the lock when
/// the process ends.
///
/// # Errors
///
/// [`io::ErrorKind::WouldBlock`] if another process has locked it.
pub fn lock(file: File) -> io::Result<Flock<File>> {
    let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
    locked.map_err(|(_, errno): (_, Errno)| errno.into())
}

/// True if this file or folder is at a path, and not a later one with the same name.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] if nothing is there.
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let identity = |it: Metadata| (it.dev(), it.ino());
    Ok(identity(fs::metadata(path)?) == identity(file.metadata()?))
}

/// The path of a file after following links, whether it exists or not; links remain.
///
/// # Errors
///
/// If links are circular, lead nowhere, or the kernel does not follow them.
pub fn place(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::read_link(path) {
            Ok(target) => place(&path.with_file_name(target)),
            Err(_) => Ok(path.to_owned()),
        },
        // Links that the kernel refuses to follow, such as those of other users in world-writable
        // folders (fs.protected_symlinks), are refused here as well.
        found => found.and_then(|_| path.canonicalize()),
    }
}

/// The path of the temporary file for a target: always the same, so that killed processes leave at
/// most one.
///
/// # Errors
///
/// [`ErrorKind::IsADirectory`] if the target has no file name.
pub fn temporary_path(place: &Path) -> io::Result<PathBuf> {
    let mut name = OsString::from(".");
    name.push(place.file_name().ok_or(ErrorKind::IsADirectory)?);
    name.push(".new");
    Ok(place.with_file_name(name))
}

/// How long another process may take over the same file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Creates an empty temporary file ([`temporary_path`]) for a target, with this mode as limited by the
/// umask. It stays locked by this process, even after it is moved to the target; dropped before
/// that, it is removed.
///
/// # Errors
///
/// [`ErrorKind::WouldBlock`] if another process is writing one for the same target.
pub fn create(place: &Path, mode: u32) -> io::Result<NamedTempFile<Flock<File>>> {
    let path = temporary_path(place)?;
    let mut options = File::options();
    options.write(true).create_new(true).mode(mode);
    let started = Instant::now();
    loop {
        match options.open(&path).and_then(lock) {
            Ok(file) if is_at(&file, &path).unwrap_or(false) => {
                let path = TempPath::try_from_path(path)?;
                return Ok(NamedTempFile::from_parts(file, path));
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => remove_stale(&path)?,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            // Another removed it before it was locked.
            _ => {}
        }
        if started.elapsed() > LOCK_TIMEOUT {
            return Err(ErrorKind::WouldBlock.into());
        }
    }
}

/// Removes a stale temporary file of any type; waits briefly if another process holds it.
fn remove_stale(path: &Path) -> io::Result<()> {
    let mut options = File::options();
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let locked = match options.read(true).open(path).map(lock) {
        Ok(Err(error)) if error.kind() == ErrorKind::WouldBlock => {
            thread::sleep(Duration::from_millis(1));
            return Ok(());
        }
        // Only who holds it moves or removes it.
        Ok(Ok(file)) => match is_at(&file, path) {
            Ok(true) => Some(file),
            _ => return Ok(()),
        },
        // A later file at this path belongs to another process.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        _ => None,
    };
    let removed = fs::remove_file(path);
    drop(locked);
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// A new file that replaces another when finished; dropped before that, it is removed.
#[derive(Debug)]
pub struct AtomicFile {
    new: NamedTempFile<Flock<File>>,
    place: PathBuf,
}

impl AtomicFile {
    /// Starts the replacement of the file at this path, following links; with at most the mode of
    /// the existing file. `None` if it cannot be replaced: a pipe, a terminal and the like.
    ///
    /// # Errors
    ///
    /// As [`place`] and [`create`].
    pub fn create(path: &Path) -> io::Result<Option<Self>> {
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Ok(None);
        }
        let place = place(path)?;
        let existing = fs::metadata(&place)
            .map(|existing| existing.permissions())
            .ok();
        let mode = existing.as_ref().map_or(0o666, PermissionsExt::mode);
        let new = create(&place, mode)?;
        if let Some(existing) = existing {
            new.as_file().set_permissions(existing)?;
        }
        Ok(Some(Self { new, place }))
    }

    /// Moves the file to its target.
    ///
    /// # Errors
    ///
    /// The kernel's; the old file then remains, unless something is mounted there.
    pub fn finish(self) -> io::Result<()> {
        match self.new.persist(&self.place) {
            // A single file is mounted there, as in a container: it cannot be replaced.
            Err(error) if error.error.raw_os_error() == Some(libc::EBUSY) => {
                fs::copy(error.file.path(), &self.place).map(drop)
            }
            persisted => Ok(persisted.map(drop)?),
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&mut &**self.new.as_file()).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&mut &**self.new.as_file()).flush()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn lock_excludes_others_until_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let open = || File::open(folder.path()).unwrap();
        let locked = lock(open()).unwrap();
        let refused = lock(open()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(locked);
        lock(open()).unwrap();
    }

    #[test]
    fn recreated_folder_is_not_at_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it");
        fs::create_dir(&path).unwrap();
        let locked = File::open(&path).unwrap();
        assert!(is_at(&locked, &path).unwrap());
        fs::remove_dir(&path).unwrap();
        let none = is_at(&locked, &path).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        fs::create_dir(&path).unwrap();
        assert!(!is_at(&locked, &path).unwrap());
    }

    #[test]
    fn link_resolves_with_and_without_target() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let [there, link, far, within] = ["there", "link", "far", "within"].map(|it| root.join(it));
        assert_eq!(place(&there).unwrap(), there);
        fs::create_dir(&within).unwrap();
        symlink("../there", within.join("link")).unwrap();
        symlink("within/link", &link).unwrap();
        symlink(&link, &far).unwrap();
        for _ in 0..2 {
            for path in [&link, &far] {
                let found = place(path).unwrap();
                assert_eq!(found.file_name(), there.file_name());
                let parent = found.parent().unwrap().canonicalize().unwrap();
                assert_eq!(parent, root);
            }
            fs::write(&there, "").unwrap();
        }
    }

    #[test]
    fn link_protected_by_kernel_is_not_resolved() {
        let protected = fs::read_to_string("/proc/sys/fs/protected_symlinks").unwrap();
        if protected.trim() == "0" || !nix::unistd::geteuid().is_root() {
            println!("left out: it takes root and fs.protected_symlinks");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        let [target, link] = ["target", "link"].map(|it| folder.path().join(it));
        fs::write(&target, "").unwrap();
        symlink(&target, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65534), Some(65534)).unwrap();
        let error = place(&link).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn circular_link_is_not_resolved() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("link", &link).unwrap();
        place(&link).unwrap_err();
    }

    #[test]
    fn new_file_has_mode_and_is_removed_unless_persisted() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("file");
        let rights = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let new = create(&place, 0o600).unwrap();
        assert_eq!(rights(new.path()), 0o600);
        drop(new);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        create(&place, 0o600).unwrap().persist(&place).unwrap();
        assert_eq!(rights(&place), 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn persisted_file_stays_locked() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("file");
        let _held = create(&place, 0o600).unwrap().persist(&place).unwrap();
        let other = lock(File::open(&place).unwrap());
        assert_eq!(other.unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn concurrent_create_fails_while_file_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("file");
        let new = create(&place, 0o600).unwrap();
        let other = create(&place, 0o600).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::WouldBlock);
        new.persist(&place).unwrap();
    }

    /// A leftover that goes as it is looked at may have made room for another's file.
    #[test]
    fn concurrent_writers_each_persist_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("file");
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..4000 {
                        create(&place, 0o600).unwrap().persist(&place).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
