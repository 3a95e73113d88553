//! Files of results: what is there stays until the new one is whole, and is then replaced by it.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::settings::BadInput;
use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags};
use pillion_bpf::host::atomic_file::Replacement;
use pillion_bpf::host::interruption::poll;

/// How long to wait for the reader of a pipe while it reads nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file that an option names, of which it is known that it can be written.
#[derive(Debug)]
pub struct OutputFile {
    option: &'static str,
    path: PathBuf,
}

impl OutputFile {
    /// Finds out that it can be written, and leaves what is there as it is.
    pub fn to(option: &'static str, path: &Path) -> Result<Self> {
        refuse_dash(option, path)?;
        let file = Self {
            option,
            path: path.to_owned(),
        };
        let begun = Replacement::begin(path).and_then(|new| match new {
            Some(_) => Ok(()),
            None => open(path).map(drop),
        });
        begun.with_context(|| file.failed())?;
        Ok(file)
    }

    /// The same for a page, which takes the place of nothing but a page: a trace, a run or an experiment
    /// named by mistake stays what it is.
    pub fn page(option: &'static str, path: &Path) -> Result<Self> {
        let file = Self::to(option, path)?;
        match holds_else(path).with_context(|| file.failed())? {
            false => Ok(file),
            true => Err(BadInput(format!(
                "{option} {}: something else than a page is there, which is never overwritten; name \
                 another file",
                path.display()
            ))
            .into()),
        }
    }

    /// Puts this text in the place of what is there; waits for who reads a pipe, as long as it reads.
    pub fn write(&self, text: &str) -> Result<()> {
        self.write_within(PATIENCE, text)
    }

    /// The same without waiting for anybody.
    pub fn write_now(&self, text: &str) -> Result<()> {
        self.write_within(Duration::ZERO, text)
    }

    fn write_within(&self, patience: Duration, text: &str) -> Result<()> {
        let text = text.as_bytes();
        let written = Replacement::begin(&self.path).and_then(|new| match new {
            Some(mut new) => new.write_all(text).and_then(|()| new.finish()),
            None => open(&self.path).and_then(|file| write_all(&file, text, patience)),
        });
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

/// What other programs take for standard output would be a file here.
pub fn refuse_dash(option: &str, path: &Path) -> Result<(), BadInput> {
    let why = "is no name of a file here; /dev/stdout is standard output, and ./- a file called so";
    match path == Path::new("-") {
        true => Err(BadInput(format!("{option} -: {why}"))),
        false => Ok(()),
    }
}

/// Whether a regular file is there with something that is no page.
fn holds_else(path: &Path) -> io::Result<bool> {
    if !path.is_file() {
        return Ok(false);
    }
    let mut begin = Vec::new();
    File::open(path)?.take(64).read_to_end(&mut begin)?;
    let begin = begin.trim_ascii_start().to_ascii_lowercase();
    Ok(!begin.is_empty() && !begin.starts_with(b"<!doctype html"))
}

/// A pipe without a reader is no place to wait at.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).custom_flags(libc::O_NONBLOCK);
    options.open(path)
}

/// Writes it all, and waits each time so long that some of it can be.
fn write_all(mut file: &File, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
                if poll(&mut fds, Some(patience))? == 0 {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

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
    fn a_file_that_is_not_there_yet_is_made_where_a_link_leads() {
        let folder = tempfile::tempdir().unwrap();
        let [link, within] = ["link", "within"].map(|it| folder.path().join(it));
        fs::create_dir(&within).unwrap();
        std::os::unix::fs::symlink("within/file", &link).unwrap();
        let file = OutputFile::to("--stats", &link).unwrap();
        file.write("new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(within.join("file")).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_page_takes_the_place_of_pages_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link] = ["file", "link"].map(|it| folder.path().join(it));
        std::os::unix::fs::symlink("file", &link).unwrap();
        for theirs in ["duration = 1\n", "{}", "<svg/>", "\u{a1}\u{b2}"] {
            fs::write(&path, theirs).unwrap();
            for name in [&path, &link] {
                let error = OutputFile::page("--report", name).unwrap_err().to_string();
                assert!(error.contains("something else than a page"), "{error}");
                assert_eq!(fs::read_to_string(&path).unwrap(), theirs);
            }
        }
        for page in ["", "<!DOCTYPE html>\n", "\n<!doctype HTML><p>"] {
            fs::write(&path, page).unwrap();
            OutputFile::page("--report", &link)
                .unwrap()
                .write("new")
                .unwrap();
        }
        OutputFile::page("--report", Path::new("/dev/null")).unwrap();
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
    fn all_of_it_comes_through_a_pipe_whose_reader_is_slow() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let text = "a".repeat(1 << 20);
        thread::scope(|scope| {
            let mut options = File::options();
            options.read(true).custom_flags(libc::O_NONBLOCK);
            let reader = options.open(&path).unwrap();
            let written = scope.spawn(|| {
                let file = OutputFile::to("--html", &path).unwrap();
                file.write_now(&text).unwrap_err();
                file.write(&text)
            });
            let mut read = 0;
            while !written.is_finished() || read < 2 * text.len() {
                thread::sleep(std::time::Duration::from_millis(1));
                let mut bytes = [0; 1 << 15];
                match io::Read::read(&mut &reader, &mut bytes) {
                    Ok(0) if written.is_finished() => break,
                    Ok(0) => {}
                    Ok(count) => read += count,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            written.join().unwrap().unwrap();
            assert!(read >= text.len(), "{read} bytes");
        });
    }

    #[test]
    fn what_is_no_regular_file_is_written_to() {
        let null = OutputFile::to("--stats", Path::new("/dev/null")).unwrap();
        null.write("text").unwrap();
        let error = OutputFile::to("--stats", Path::new("/nonexistent/stats")).unwrap_err();
        assert_eq!(error.to_string(), "write --stats /nonexistent/stats");
    }
}
