//! Results of a run, copied to the host while they grow.

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

/// Copies results to the host. It copies them while they grow, so that they survive a kernel crash,
/// and completely at the end.
pub struct ResultsCopier {
    stop: Sender<()>,
    thread: JoinHandle<Result<(), String>>,
}

/// Virtual time between two copies of the results.
const COPY_INTERVAL: Duration = Duration::from_millis(500);

/// Mount point of the host's folder, only for the thread that copies. Other threads would see the
/// host's times and inode numbers there.
const HOST_MOUNT: &str = "/run";

impl ResultsCopier {
    /// Starts to copy results; returns `None` if the host gave no folder.
    pub fn start() -> Option<Self> {
        let requested = fs::read_to_string("/proc/cmdline").is_ok_and(|line| {
            line.split_whitespace()
                .any(|word| word == protocol::COPY_RESULTS_FLAG)
        });
        requested.then(|| {
            let (stop, stop_signal) = channel();
            let thread = thread::spawn(move || copy_until_stopped(&stop_signal));
            Self { stop, thread }
        })
    }

    /// Copies all remaining results.
    pub fn finish(self) -> Result<(), String> {
        drop(self.stop);
        let joined = self.thread.join();
        joined.unwrap_or_else(|_| Err("the thread that copies results failed".to_owned()))
    }
}

fn copy_until_stopped(stop: &Receiver<()>) -> Result<(), String> {
    unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS)
        .map_err(|errno| format!("leave the namespace of mounts: {errno}"))?;
    let folder = protocol::path(protocol::RESULTS_FD);
    mount(
        Some("results"),
        HOST_MOUNT,
        Some("hostfs"),
        MsFlags::empty(),
        Some(folder.as_str()),
    )
    .map_err(|errno| format!("mount the host's folder: {errno}"))?;
    let mut folder_sync = FolderSync::new(Path::new(RESULTS), Path::new(HOST_MOUNT));
    while stop.recv_timeout(COPY_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        // An error here is reported at the end, if it still occurs then.
        let _ = folder_sync.sync();
    }
    folder_sync.finish()
}

/// A copy of a folder that follows the folder while programs write to it.
pub struct FolderSync {
    from: PathBuf,
    to: PathBuf,
    /// Paths in the copy, with the number of copied bytes of each file.
    synced: BTreeMap<PathBuf, u64>,
    /// True for the last copy: it waits until files are on the host's disk, because writes may fail
    /// late.
    is_final: bool,
}

impl FolderSync {
    /// Creates an empty copy. The folder `to` exists and may contain other files.
    pub fn new(from: &Path, to: &Path) -> Self {
        Self {
            from: from.to_owned(),
            to: to.to_owned(),
            synced: BTreeMap::new(),
            is_final: false,
        }
    }

    /// Copies new files and appended data. Changes within copied data are not copied.
    pub fn sync(&mut self) -> Result<(), String> {
        self.copy_folder(Path::new(""))
    }

    /// Makes the copy equal to the folder.
    pub fn finish(mut self) -> Result<(), String> {
        for (path, copied) in self.synced.iter_mut().rev() {
            *copied = 0;
            if self.from.join(path).symlink_metadata().is_err() {
                let gone = self.to.join(path);
                let removed = fs::remove_file(&gone).or_else(|_| fs::remove_dir(&gone));
                removed.map_err(|error| format!("remove {}: {error}", path.display()))?;
            }
        }
        self.is_final = true;
        self.sync()
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
            let exists = self.synced.contains_key(&path);
            if kind.is_dir() {
                if !exists {
                    fs::create_dir_all(self.to.join(&path)).map_err(failed)?;
                    self.synced.insert(path.clone(), 0);
                }
                self.copy_folder(&path)?;
            } else if kind.is_symlink() && !exists {
                let target = fs::read_link(entry.path()).map_err(failed)?;
                symlink(target, self.to.join(&path)).map_err(failed)?;
                self.synced.insert(path, 0);
            } else if kind.is_file() {
                self.copy_file(&path).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn copy_file(&mut self, path: &Path) -> io::Result<()> {
        let length = self.from.join(path).metadata()?.len();
        let previous = self.synced.get(path).copied();
        if previous == Some(length) && length > 0 {
            return Ok(());
        }
        // A shorter file is a new file.
        let copied = previous.filter(|copied| *copied <= length).unwrap_or(0);
        let mut from = File::open(self.from.join(path))?;
        let mut to = File::options()
            .create(true)
            .write(true)
            .truncate(copied == 0)
            .open(self.to.join(path))?;
        // The file exists from now on, even if the disk has no room for all of it.
        self.synced.insert(path.to_owned(), copied);
        from.seek(SeekFrom::Start(copied))?;
        to.seek(SeekFrom::Start(copied))?;
        let added = io::copy(&mut from, &mut to)?;
        self.synced.insert(path.to_owned(), copied + added);
        if self.is_final { to.sync_all() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_copy_is_removed_with_original() {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [from, to] = folders.each_ref().map(tempfile::TempDir::path);
        fs::write(from.join("trace"), b"one").unwrap();
        symlink("/dev/full", to.join("trace")).unwrap();
        let mut folder_sync = FolderSync::new(from, to);
        let full = folder_sync.sync().unwrap_err();
        assert!(full.contains("trace: No space left"), "{full}");
        fs::remove_file(from.join("trace")).unwrap();
        folder_sync.finish().unwrap();
        assert_eq!(fs::read_dir(to).unwrap().count(), 0);
    }

    #[test]
    fn folder_sync_follows_growth_and_ends_equal() {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [from, to] = folders.each_ref().map(tempfile::TempDir::path);
        fs::write(to.join("other"), "stays").unwrap();
        let mut folder_sync = FolderSync::new(from, to);

        fs::create_dir(from.join("run.part")).unwrap();
        fs::write(from.join("run.part/trace"), "one").unwrap();
        fs::write(from.join("changed"), "before").unwrap();
        folder_sync.sync().unwrap();
        assert_eq!(fs::read(to.join("run.part/trace")).unwrap(), b"one");

        let mut trace = File::options();
        let mut trace = trace
            .append(true)
            .open(from.join("run.part/trace"))
            .unwrap();
        io::Write::write_all(&mut trace, b", two").unwrap();
        folder_sync.sync().unwrap();
        assert_eq!(fs::read(to.join("run.part/trace")).unwrap(), b"one, two");

        fs::write(from.join("changed"), "behind").unwrap();
        fs::rename(from.join("run.part"), from.join("run")).unwrap();
        symlink("run", from.join("link")).unwrap();
        folder_sync.finish().unwrap();
        assert!(!to.join("run.part").exists());
        let text = |file: &str| fs::read_to_string(to.join(file)).unwrap();
        let texts = ["run/trace", "link/trace", "changed", "other"].map(text);
        assert_eq!(texts, ["one, two", "one, two", "behind", "stays"]);
    }
}
