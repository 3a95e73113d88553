//! Result files, which are replaced atomically.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::settings::BadInput;
use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags};
use pillion_bpf::host::atomic_file::AtomicFile;
use pillion_bpf::host::interruption::poll;

/// Time-out for a pipe whose reader does not read.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A writable file that an option names.
#[derive(Debug)]
pub struct OutputFile {
    option: &'static str,
    path: PathBuf,
}

impl OutputFile {
    /// Tests that the file can be written, without changing it.
    pub fn to(option: &'static str, path: &Path) -> Result<Self> {
        refuse_dash(option, path)?;
        let file = Self {
            option,
            path: path.to_owned(),
        };
        let opened = AtomicFile::create(path).and_then(|new| match new {
            Some(_) => Ok(()),
            None => open(path).map(drop),
        });
        opened.with_context(|| file.failed())?;
        Ok(file)
    }

    /// Like [`OutputFile::to`] for an HTML page, which replaces only HTML pages: a trace, run or experiment
    /// that was named by mistake is not overwritten.
    pub fn page(option: &'static str, path: &Path) -> Result<Self> {
        let file = Self::to(option, path)?;
        match is_other_file(path).with_context(|| file.failed())? {
            false => Ok(file),
            true => Err(BadInput(format!(
                "{option} {}: the file exists and is not an HTML page, so it is not overwritten; \
                 choose another file",
                path.display()
            ))
            .into()),
        }
    }

    /// Replaces the file. Waits for the reader of a pipe while it reads.
    pub fn write(&self, text: &str) -> Result<()> {
        self.write_within(TIMEOUT, text)
    }

    /// Like [`OutputFile::write`], without waiting.
    pub fn write_now(&self, text: &str) -> Result<()> {
        self.write_within(Duration::ZERO, text)
    }

    fn write_within(&self, timeout: Duration, text: &str) -> Result<()> {
        let text = text.as_bytes();
        let written = AtomicFile::create(&self.path).and_then(|new| match new {
            Some(mut new) => new.write_all(text).and_then(|()| new.finish()),
            None => open(&self.path).and_then(|file| write_all(&file, text, timeout)),
        });
        written.with_context(|| self.failed())
    }

    /// Returns the absolute path if it can be resolved.
    pub fn name(&self) -> PathBuf {
        let absolute = self.path.canonicalize();
        absolute.unwrap_or_else(|_| self.path.clone())
    }

    fn failed(&self) -> String {
        format!("write {} {}", self.option, self.path.display())
    }
}

/// Refuses `-`, which is standard output in other programs and would be a file here.
pub fn refuse_dash(option: &str, path: &Path) -> Result<(), BadInput> {
    let why = "expected a file name; use /dev/stdout for standard output, or ./- for a file with this name";
    match path == Path::new("-") {
        true => Err(BadInput(format!("{option} -: {why}"))),
        false => Ok(()),
    }
}

/// Returns true if the path is a regular file with other contents than an HTML page.
fn is_other_file(path: &Path) -> io::Result<bool> {
    if !path.is_file() {
        return Ok(false);
    }
    let mut start = Vec::new();
    File::open(path)?.take(64).read_to_end(&mut start)?;
    let start = start.trim_ascii_start().to_ascii_lowercase();
    Ok(!start.is_empty() && !start.starts_with(b"<!doctype html"))
}

/// Opens without blocking, so that a pipe without a reader is an error.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).custom_flags(libc::O_NONBLOCK);
    options.open(path)
}

/// Writes all bytes, and waits up to the time-out whenever nothing can be written.
fn write_all(mut file: &File, mut bytes: &[u8], timeout: Duration) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
                if poll(&mut fds, Some(timeout))? == 0 {
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
    fn replacement_keeps_permissions_and_follows_links() {
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
    fn new_file_is_created_at_the_target_of_a_link() {
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
    fn page_replaces_only_pages() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link] = ["file", "link"].map(|it| folder.path().join(it));
        std::os::unix::fs::symlink("file", &link).unwrap();
        for theirs in ["duration = 1\n", "{}", "<svg/>", "\u{a1}\u{b2}"] {
            fs::write(&path, theirs).unwrap();
            for name in [&path, &link] {
                let error = OutputFile::page("--report", name).unwrap_err().to_string();
                assert!(error.contains("is not an HTML page"), "{error}");
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
    fn unwritten_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        OutputFile::to("--html", &folder.path().join("report.html")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn concurrent_writers_leave_complete_files() {
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
    fn leftover_of_killed_writer_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stats");
        fs::write(folder.path().join(".stats.new"), "half of some longer text").unwrap();
        let file = OutputFile::to("--stats", &path).unwrap();
        file.write("whole").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn foreign_temporary_file_neither_blocks_nor_is_written() {
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
    fn slow_reader_of_a_pipe_gets_all_bytes() {
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
    fn device_is_written_without_replacement() {
        let null = OutputFile::to("--stats", Path::new("/dev/null")).unwrap();
        null.write("text").unwrap();
        let error = OutputFile::to("--stats", Path::new("/nonexistent/stats")).unwrap_err();
        assert_eq!(error.to_string(), "write --stats /nonexistent/stats");
    }
}
