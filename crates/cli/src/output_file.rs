//! Files of results: what is there stays until the new one is whole, and is then replaced by it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::fcntl::Flock;
use pillion_host::held_file;

/// A file that an option names, of which it is known that it can be written.
#[derive(Debug)]
pub struct OutputFile {
    option: &'static str,
    path: PathBuf,
}

impl OutputFile {
    /// Finds out that it can be written, and leaves what is there as it is.
    pub fn to(option: &'static str, path: &Path) -> Result<Self> {
        let file = Self {
            option,
            path: path.to_owned(),
        };
        let opened = match place(path) {
            Some(place) => beside(&place).and_then(|(_held, path)| fs::remove_file(path)),
            None => open(path).map(drop),
        };
        opened.with_context(|| file.failed())?;
        Ok(file)
    }

    /// Puts this text in the place of what is there.
    pub fn write(&self, text: &str) -> Result<()> {
        let written = match place(&self.path) {
            Some(place) => replace(&place, text),
            None => open(&self.path).and_then(|mut file| file.write_all(text.as_bytes())),
        };
        written.with_context(|| self.failed())
    }

    /// What it is called, as a whole path where that is known.
    pub fn name(&self) -> PathBuf {
        let whole = self.path.canonicalize();
        whole.unwrap_or_else(|_| self.path.clone())
    }

    fn failed(&self) -> String {
        format!("write {} {}", self.option, self.path.display())
    }
}

/// The regular file that is to be replaced; `None` for a pipe, a terminal and the like.
fn place(path: &Path) -> Option<PathBuf> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => None,
        Ok(_) => path.canonicalize().ok(),
        Err(_) => Some(path.to_owned()),
    }
}

/// A pipe without a reader is no place to wait at.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).custom_flags(libc::O_NONBLOCK);
    options.open(path)
}

fn replace(place: &Path, text: &str) -> io::Result<()> {
    let (mut file, path) = beside(place)?;
    let written = file.write_all(text.as_bytes());
    let replaced = written.and_then(|()| fs::rename(&path, place));
    if replaced.is_err() {
        let _ = fs::remove_file(path);
    }
    replaced
}

/// How long another process may take over the same file.
const PATIENCE: Duration = Duration::from_secs(1);

/// An empty file in the folder of another one, with its rights, and this process's alone: a pillion
/// and the one that takes over from it write the same. It always has the same name, so that no more
/// than one is ever left by a pillion that was killed.
fn beside(place: &Path) -> io::Result<(Flock<File>, PathBuf)> {
    let mut name = OsString::from(".");
    name.push(place.file_name().ok_or(ErrorKind::IsADirectory)?);
    name.push(".new");
    let path = place.with_file_name(name);
    let begun = Instant::now();
    let file = loop {
        match File::create_new(&path).and_then(held_file::lock) {
            Ok(file) if held_file::is_at(&file, &path).unwrap_or(false) => break file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => remove_left(&path)?,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            // Another removed it before it was locked.
            _ => {}
        }
        if begun.elapsed() > PATIENCE {
            return Err(ErrorKind::WouldBlock.into());
        }
    };
    if let Ok(known) = fs::metadata(place) {
        file.set_permissions(known.permissions())?;
    }
    Ok((file, path))
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
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_rights_and_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let mut held = File::open(&path).unwrap();
        let file = OutputFile::to("--stats", &link).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        file.write("new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let rights = fs::metadata(&path).unwrap().permissions();
        assert_eq!(rights.mode() & 0o777, 0o640);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(io::read_to_string(&mut held).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn nothing_is_made_where_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        OutputFile::to("--html", &folder.path().join("report.html")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn two_that_write_the_same_file_never_leave_half_of_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stats");
        let texts = ["a".repeat(1 << 20), "b".repeat(1 << 20)];
        thread::scope(|scope| {
            for text in &texts {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let file = OutputFile::to("--stats", &path).unwrap();
                        file.write(text).unwrap();
                        let found = fs::read_to_string(&path).unwrap();
                        assert!(texts.contains(&found), "{} bytes", found.len());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_one_left_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stats");
        fs::write(folder.path().join(".stats.new"), "half of some longer text").unwrap();
        let file = OutputFile::to("--stats", &path).unwrap();
        file.write("whole").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_stranger_put_in_its_way_is_neither_waited_for_nor_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let (path, new) = (
            folder.path().join("stats"),
            folder.path().join(".stats.new"),
        );
        let others = folder.path().join("others");
        fs::write(&others, "theirs").unwrap();
        let in_the_way: [&dyn Fn(); 3] = [
            &|| nix::unistd::mkfifo(&new, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            &|| std::os::unix::fs::symlink(&others, &new).unwrap(),
            &|| fs::hard_link(&others, &new).unwrap(),
        ];
        for put in in_the_way {
            put();
            OutputFile::to("--stats", &path).unwrap();
            put();
            OutputFile::to("--stats", &path)
                .unwrap()
                .write("whole")
                .unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            assert_eq!(fs::read_to_string(&others).unwrap(), "theirs");
        }
    }

    #[test]
    fn what_is_no_regular_file_is_written_to() {
        let null = OutputFile::to("--stats", Path::new("/dev/null")).unwrap();
        null.write("text").unwrap();
        let error = OutputFile::to("--stats", Path::new("/nonexistent/stats")).unwrap_err();
        assert_eq!(error.to_string(), "write --stats /nonexistent/stats");
    }
}
