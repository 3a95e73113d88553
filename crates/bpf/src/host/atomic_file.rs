//! A file that is written anew: what is there stays until the new one is whole, and no other process
//! works on the same one.

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

/// Where the file of a path is, or would be made: a link is followed, and stays.
///
/// # Errors
/// If the path leads round in a circle, to where nothing can be found, or where the kernel does not
/// follow.
pub fn place(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::read_link(path) {
            Ok(target) => place(&path.with_file_name(target)),
            Err(_) => Ok(path.to_owned()),
        },
        // What the kernel does not follow, as strangers' links in folders for all
        // (fs.protected_symlinks), is no way for pillion either.
        found => found.and_then(|_| path.canonicalize()),
    }
}

/// Where that is made which is to replace what is at a place: always under the same name, so that no
/// more than one is ever left by processes that were killed.
///
/// # Errors
/// [`ErrorKind::IsADirectory`] if a place has no name.
pub fn beside(place: &Path) -> io::Result<PathBuf> {
    let mut name = OsString::from(".");
    name.push(place.file_name().ok_or(ErrorKind::IsADirectory)?);
    name.push(".new");
    Ok(place.with_file_name(name))
}

/// How long another process may take over the same file.
const PATIENCE: Duration = Duration::from_secs(1);

/// Makes an empty file [`beside`] a place, with these rights as far as the umask leaves them. It is
/// this process's alone, there as well once it is moved there; dropped before, it is removed.
///
/// # Errors
/// [`ErrorKind::WouldBlock`] if another process is at work on one for the same place, and goes on with
/// that.
pub fn create(place: &Path, mode: u32) -> io::Result<NamedTempFile<Flock<File>>> {
    let path = beside(place)?;
    let mut options = File::options();
    options.write(true).create_new(true).mode(mode);
    let begun = Instant::now();
    loop {
        match options.open(&path).and_then(lock) {
            Ok(file) if is_at(&file, &path).unwrap_or(false) => {
                let path = TempPath::try_from_path(path)?;
                return Ok(NamedTempFile::from_parts(file, path));
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => remove_left(&path)?,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            // Another removed it before it was locked.
            _ => {}
        }
        if begun.elapsed() > PATIENCE {
            return Err(ErrorKind::WouldBlock.into());
        }
    }
}

/// Removes what somebody left, whatever it is; waits a little if another process is at work on it.
fn remove_left(path: &Path) -> io::Result<()> {
    let mut options = File::options();
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let held = match options.read(true).open(path).map(lock) {
        Ok(Err(error)) if error.kind() == ErrorKind::WouldBlock => {
            thread::sleep(Duration::from_millis(1));
            return Ok(());
        }
        // Only who holds it moves or removes it.
        Ok(Ok(file)) => match is_at(&file, path) {
            Ok(true) => Some(file),
            _ => return Ok(()),
        },
        // What comes there from now on is another's.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        _ => None,
    };
    let removed = fs::remove_file(path);
    drop(held);
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// A new file that takes the place of another, or of none; dropped before it is finished, it is
/// removed.
#[derive(Debug)]
pub struct Replacement {
    new: NamedTempFile<Flock<File>>,
    place: PathBuf,
}

impl Replacement {
    /// Begins one for what is at this path, where a link is followed; with the rights of the file
    /// that is there, and never with more. `None` where no file can take the place of what is
    /// there: a pipe, a terminal and the like.
    ///
    /// # Errors
    /// As [`place`] and [`create`].
    pub fn begin(path: &Path) -> io::Result<Option<Self>> {
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Ok(None);
        }
        let place = place(path)?;
        let known = fs::metadata(&place).map(|known| known.permissions()).ok();
        let mode = known.as_ref().map_or(0o666, PermissionsExt::mode);
        let new = create(&place, mode)?;
        if let Some(known) = known {
            new.as_file().set_permissions(known)?;
        }
        Ok(Some(Self { new, place }))
    }

    /// Puts it into its place.
    ///
    /// # Errors
    /// What the system says; what was there is there still, unless something is mounted there.
    pub fn finish(self) -> io::Result<()> {
        match self.new.persist(&self.place) {
            // A single file is mounted there, as in a container: nothing can take its place.
            Err(error) if error.error.raw_os_error() == Some(libc::EBUSY) => {
                fs::copy(error.file.path(), &self.place).map(drop)
            }
            persisted => Ok(persisted.map(drop)?),
        }
    }
}

impl Write for Replacement {
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

    #[test]
    fn a_link_leads_to_its_place_whether_anything_is_there_or_not() {
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
    fn a_link_that_the_kernel_does_not_follow_has_no_place() {
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
    fn a_path_that_leads_round_in_a_circle_has_no_place() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("link", &link).unwrap();
        place(&link).unwrap_err();
    }

    #[test]
    fn a_new_file_has_its_rights_and_is_removed_unless_it_is_moved() {
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
    fn a_new_file_stays_ones_own_where_it_is_moved() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("file");
        let _held = create(&place, 0o600).unwrap().persist(&place).unwrap();
        let other = lock(File::open(&place).unwrap());
        assert_eq!(other.unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn who_is_at_work_on_a_new_file_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("file");
        let new = create(&place, 0o600).unwrap();
        let other = create(&place, 0o600).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::WouldBlock);
        new.persist(&place).unwrap();
    }

    /// A leftover that goes as it is looked at may have made room for another's file.
    #[test]
    fn of_many_at_once_each_moves_its_own() {
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
