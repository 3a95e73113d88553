//! A new file that is to replace another one: that stays as it is until the new one is whole.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::Flock;
use tempfile::{NamedTempFile, TempPath};

use crate::host::held_file;

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
        match options.open(&path).and_then(held_file::lock) {
            Ok(file) if held_file::is_at(&file, &path).unwrap_or(false) => {
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
    let held = match options.read(true).open(path).map(held_file::lock) {
        Ok(Err(error)) if error.kind() == ErrorKind::WouldBlock => {
            thread::sleep(Duration::from_millis(1));
            return Ok(());
        }
        // Only who holds it moves or removes it.
        Ok(Ok(file)) => match held_file::is_at(&file, path) {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

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
        let other = held_file::lock(File::open(&place).unwrap());
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
