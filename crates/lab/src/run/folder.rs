//! The folder of a run, from its creation to the manifest.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pillion_bpf::host::clock::monotonic_ns;
use serde::Serialize;

use super::layout::{FAILED_SUFFIX, PARTIAL_SUFFIX, failed_path, with_suffix};
use crate::lock::{RunLock, lock_or_busy, lock_parent};
use crate::settings::experiment::Engine;
use crate::{Error, kernel_release};

/// The folder of a run in progress. It has a suffix until it is complete, so that a folder without
/// one is always complete.
#[derive(Debug)]
pub(super) struct RunFolder {
    path: PathBuf,
    target: PathBuf,
    _lock: RunLock,
}

const THIS_RUN: &str = "this run";

impl RunFolder {
    /// Creates and locks the folder of a run. The folder of a killed run is renamed to that of a
    /// failed one.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if `target` exists; [`Error::Busy`] if another process makes the run.
    pub(super) fn create(target: &Path) -> Result<Self, Error> {
        if target.symlink_metadata().is_ok() {
            let reason = "the folder exists, and a run is never overwritten; name another folder";
            return Err(Error::file(target)(io::Error::other(reason)));
        }
        let path = with_suffix(target, PARTIAL_SUFFIX);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(Error::file(parent))?;
        }
        let failed = Error::file(&path);
        let lock_parent = lock_parent(path.parent().unwrap_or(Path::new(""))).map_err(&failed)?;
        if path.is_dir() {
            let _lock = lock_or_busy(THIS_RUN, &path)?;
            let killed = fs::write(path.join(FAILED_SUFFIX), "killed\n");
            killed.map_err(&failed)?;
            fs::rename(&path, failed_path(target)).map_err(&failed)?;
        }
        fs::create_dir(&path).map_err(&failed)?;
        let _lock = lock_or_busy(THIS_RUN, &path)?;
        drop(lock_parent);
        let target = target.to_owned();
        Ok(Self {
            path,
            target,
            _lock,
        })
    }

    /// Returns the path of a file in the folder.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.file(name);
        fs::write(&path, text).map_err(Error::file(&path))
    }

    pub(super) fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), Error> {
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|error| Error::file(&self.file(name))(error.into()))?;
        text.push('\n');
        self.write(name, &text)
    }

    /// Renames the folder to its final name, because it is complete.
    pub(super) fn finish(&self) -> Result<(), Error> {
        // All files are on the disk before the folder gets its final name.
        for entry in fs::read_dir(&self.path).map_err(Error::file(&self.path))? {
            let path = entry.map_err(Error::file(&self.path))?.path();
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(Error::file(&path))?;
        }
        fs::rename(&self.path, &self.target).map_err(Error::file(&self.target))
    }

    /// Stores the error and renames the folder to that of a failed run, ignoring further errors.
    pub(super) fn mark_failed(&self, reason: &Error) {
        let _ = fs::write(self.file(FAILED_SUFFIX), format!("{reason}\n"));
        let _ = fs::rename(&self.path, failed_path(&self.target));
    }
}

/// The software and the machine that made a run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Manifest {
    /// pillion's version.
    version: String,
    engine: Engine,
    /// A hash of the lab kernel's source, patches and configuration; `None` on other kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    lab_kernel: Option<String>,
    kernel: String,
    machine: String,
    processors: usize,
    /// The path emulator: `netem`, or pillion's own `path`.
    emulator: &'static str,
    seed: u64,
    /// `CLOCK_REALTIME` at the start of the run, for traces, and `CLOCK_MONOTONIC` at the same
    /// moment, for all other files; in nanoseconds.
    begun_realtime_ns: u64,
    begun_ns: u64,
    /// `CLOCK_MONOTONIC` when the streams' barrier opened, in nanoseconds.
    barrier_ns: u64,
    ended_ns: u64,
}

/// The start of the run by both clocks.
pub(super) struct StartTime {
    realtime_ns: u64,
    monotonic_ns: u64,
}

impl StartTime {
    pub(super) fn now() -> Self {
        let realtime = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            realtime_ns: realtime.unwrap_or(Duration::ZERO).as_nanos() as u64,
            monotonic_ns: monotonic_ns(),
        }
    }
}

impl Manifest {
    pub(super) fn new(
        options: &super::RunOptions,
        start_time: &StartTime,
        emulator: &'static str,
        seed: u64,
        barrier_ns: u64,
    ) -> Self {
        let machine = nix::sys::utsname::uname();
        let machine = machine.map(|name| name.machine().to_string_lossy().into_owned());
        Self {
            version: options.version.to_owned(),
            engine: options.engine,
            lab_kernel: options.lab_kernel.clone(),
            kernel: kernel_release(),
            machine: machine.unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(1, Into::into),
            emulator,
            seed,
            begun_realtime_ns: start_time.realtime_ns,
            begun_ns: start_time.monotonic_ns,
            barrier_ns,
            ended_ns: monotonic_ns(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::RUN_FILE;
    use super::*;

    #[test]
    fn killed_run_is_stored_and_running_one_is_locked() {
        let store = tempfile::tempdir().unwrap();
        let target = store.path().join("plain");
        let killed = RunFolder::create(&target).unwrap();
        killed.write(RUN_FILE, "seed = 7\n").unwrap();
        let busy = RunFolder::create(&target).unwrap_err().to_string();
        assert!(busy.contains("another process"), "{busy}");
        drop(killed);
        let next = RunFolder::create(&target).unwrap();
        let failed = store.path().join("plain.broken");
        assert_eq!(
            fs::read_to_string(failed.join(RUN_FILE)).unwrap(),
            "seed = 7\n"
        );
        assert!(failed.join(FAILED_SUFFIX).is_file());
        next.write(RUN_FILE, "seed = 8\n").unwrap();
        next.finish().unwrap();
        assert!(target.is_dir());
    }
}
