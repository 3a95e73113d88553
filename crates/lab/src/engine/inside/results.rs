//! The results of a run, copied to the host while they grow.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::engine::{RESULTS, protocol};

/// Results on their way to the host: copied while they grow, so that they are there should the
/// kernel break down, and as a whole in the end.
pub struct Outflow {
    over: Sender<()>,
    thread: JoinHandle<Result<(), String>>,
}

/// Virtual time between two copies of the results.
const BEAT: Duration = Duration::from_millis(500);

/// Where the host's folder is mounted, for the thread that copies alone: any other would see the
/// host's times and inode numbers there.
const OUTSIDE: &str = "/run";

impl Outflow {
    /// Begins to copy results, where the host gave a folder.
    pub fn begin() -> Option<Self> {
        let wanted = fs::read_to_string("/proc/cmdline")
            .is_ok_and(|line| line.split_whitespace().any(|word| word == protocol::WANTED));
        wanted.then(|| {
            let (over, ended) = channel();
            let thread = thread::spawn(move || copy_until(&ended));
            Self { over, thread }
        })
    }

    /// Copies all results that there are.
    pub fn finish(self) -> Result<(), String> {
        drop(self.over);
        let joined = self.thread.join();
        joined.unwrap_or_else(|_| Err("the thread that copies results failed".to_owned()))
    }
}

fn copy_until(over: &Receiver<()>) -> Result<(), String> {
    unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS)
        .map_err(|errno| format!("leave the namespace of mounts: {errno}"))?;
    let folder = protocol::path(protocol::RESULTS_FOLDER);
    mount(
        Some("results"),
        OUTSIDE,
        Some("hostfs"),
        MsFlags::empty(),
        Some(folder.as_str()),
    )
    .map_err(|errno| format!("mount the host's folder: {errno}"))?;
    let mut mirror = FolderSync::new(Path::new(RESULTS), Path::new(OUTSIDE));
    while over.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
        // What does not succeed now is told in the end, if it does not then.
        let _ = mirror.grow();
    }
    mirror.finish()
}

/// A folder's copy that follows it while it is written to.
pub struct FolderSync {
    from: PathBuf,
    to: PathBuf,
    /// Paths made in the copy, and how many bytes of each file are copied.
    made: BTreeMap<PathBuf, u64>,
    /// True if this is the last copy: files are to be on the host's disk, where writing may fail
    /// late.
    is_last: bool,
}

impl FolderSync {
    /// A mirror that has nothing yet; the folder `to` is there, and may hold other files.
    pub fn new(from: &Path, to: &Path) -> Self {
        Self {
            from: from.to_owned(),
            to: to.to_owned(),
            made: BTreeMap::new(),
            is_last: false,
        }
    }

    /// Adds new files, and what files have grown by. What was changed in place stays as it was
    /// copied.
    pub fn grow(&mut self) -> Result<(), String> {
        self.copy_folder(Path::new(""))
    }

    /// Makes the copy equal to the folder.
    pub fn finish(mut self) -> Result<(), String> {
        for (path, copied) in self.made.iter_mut().rev() {
            *copied = 0;
            if self.from.join(path).symlink_metadata().is_err() {
                let gone = self.to.join(path);
                let removed = fs::remove_file(&gone).or_else(|_| fs::remove_dir(&gone));
                removed.map_err(|error| format!("remove {}: {error}", path.display()))?;
            }
        }
        self.is_last = true;
        self.grow()
    }

    fn copy_folder(&mut self, folder: &Path) -> Result<(), String> {
        let failed = |error: io::Error| format!("copy {}: {error}", folder.display());
        let mut entries = fs::read_dir(self.from.join(folder))
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(failed)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = folder.join(entry.file_name());
            let failed = |error: io::Error| format!("copy {}: {error}", path.display());
            let kind = entry.file_type().map_err(failed)?;
            let known = self.made.contains_key(&path);
            if kind.is_dir() {
                if !known {
                    fs::create_dir_all(self.to.join(&path)).map_err(failed)?;
                    self.made.insert(path.clone(), 0);
                }
                self.copy_folder(&path)?;
            } else if kind.is_symlink() && !known {
                let target = fs::read_link(entry.path()).map_err(failed)?;
                symlink(target, self.to.join(&path)).map_err(failed)?;
                self.made.insert(path, 0);
            } else if kind.is_file() {
                self.copy_file(&path).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn copy_file(&mut self, path: &Path) -> io::Result<()> {
        let length = self.from.join(path).metadata()?.len();
        let known = self.made.get(path).copied();
        if known == Some(length) && length > 0 {
            return Ok(());
        }
        // A shorter one is another.
        let copied = known.filter(|copied| *copied <= length).unwrap_or(0);
        let mut from = File::open(self.from.join(path))?;
        let mut to = File::options()
            .create(true)
            .write(true)
            .truncate(copied == 0)
            .open(self.to.join(path))?;
        // It is there from now on, also where the disk has no room for all of it.
        self.made.insert(path.to_owned(), copied);
        from.seek(SeekFrom::Start(copied))?;
        to.seek(SeekFrom::Start(copied))?;
        let more = io::copy(&mut from, &mut to)?;
        self.made.insert(path.to_owned(), copied + more);
        if self.is_last { to.sync_all() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_found_no_room_goes_with_its_original() {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [from, to] = folders.each_ref().map(tempfile::TempDir::path);
        fs::write(from.join("trace"), b"one").unwrap();
        symlink("/dev/full", to.join("trace")).unwrap();
        let mut mirror = FolderSync::new(from, to);
        let full = mirror.grow().unwrap_err();
        assert!(full.contains("trace: No space left"), "{full}");
        fs::remove_file(from.join("trace")).unwrap();
        mirror.finish().unwrap();
        assert_eq!(fs::read_dir(to).unwrap().count(), 0);
    }

    #[test]
    fn a_mirror_grows_with_its_folder_and_is_the_same_in_the_end() {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [from, to] = folders.each_ref().map(tempfile::TempDir::path);
        fs::write(to.join("other"), "stays").unwrap();
        let mut mirror = FolderSync::new(from, to);

        fs::create_dir(from.join("run.part")).unwrap();
        fs::write(from.join("run.part/trace"), "one").unwrap();
        fs::write(from.join("changed"), "before").unwrap();
        mirror.grow().unwrap();
        assert_eq!(fs::read(to.join("run.part/trace")).unwrap(), b"one");

        let mut trace = File::options();
        let mut trace = trace
            .append(true)
            .open(from.join("run.part/trace"))
            .unwrap();
        io::Write::write_all(&mut trace, b", two").unwrap();
        mirror.grow().unwrap();
        assert_eq!(fs::read(to.join("run.part/trace")).unwrap(), b"one, two");

        fs::write(from.join("changed"), "behind").unwrap();
        fs::rename(from.join("run.part"), from.join("run")).unwrap();
        symlink("run", from.join("link")).unwrap();
        mirror.finish().unwrap();
        assert!(!to.join("run.part").exists());
        let text = |file: &str| fs::read_to_string(to.join(file)).unwrap();
        let texts = ["run/trace", "link/trace", "changed", "other"].map(text);
        assert_eq!(texts, ["one, two", "one, two", "behind", "stays"]);
    }
}
