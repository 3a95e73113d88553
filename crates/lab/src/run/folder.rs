//! The files of a run's folder, from its begin to the manifest.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pillion_bpf::host::clock::monotonic_ns;
use serde::Serialize;

use super::layout::{BROKEN, PART, beside, place_of_broken};
use crate::hold::{Held, hold_for, turn};
use crate::settings::experiment::Engine;
use crate::{Error, kernel_release};

/// The folder of a run being made: beside the place that it is for, so that what is there is
/// whole.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    target: PathBuf,
    _held: Held,
}

const THIS_RUN: &str = "this run";

impl Folder {
    /// Begins the folder of a run; what there is of one that was killed is kept as of one that failed.
    ///
    /// # Errors
    /// [`Error::File`] if there is something in its place already; [`Error::Busy`] if another process makes
    /// the run.
    pub(super) fn begin(target: &Path) -> Result<Self, Error> {
        if target.symlink_metadata().is_ok() {
            let why = "it is there already, and a run is never overwritten; name another folder";
            return Err(Error::file(target)(io::Error::other(why)));
        }
        let path = beside(target, PART);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(Error::file(parent))?;
        }
        let failed = Error::file(&path);
        let turn = turn(path.parent().unwrap_or(Path::new(""))).map_err(&failed)?;
        if path.is_dir() {
            let _held = hold_for(THIS_RUN, &path)?;
            let killed = fs::write(path.join(BROKEN), "it was killed\n");
            killed.map_err(&failed)?;
            fs::rename(&path, place_of_broken(target)).map_err(&failed)?;
        }
        fs::create_dir(&path).map_err(&failed)?;
        let _held = hold_for(THIS_RUN, &path)?;
        drop(turn);
        let target = target.to_owned();
        Ok(Self {
            path,
            target,
            _held,
        })
    }

    /// The path of a file of the folder.
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

    /// Gives the folder its name: it is whole.
    pub(super) fn keep(&self) -> Result<(), Error> {
        // Before it has its name, all of it is on the disk.
        for entry in fs::read_dir(&self.path).map_err(Error::file(&self.path))? {
            let path = entry.map_err(Error::file(&self.path))?.path();
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(Error::file(&path))?;
        }
        fs::rename(&self.path, &self.target).map_err(Error::file(&self.target))
    }

    /// Gives the folder up: it will not be whole; says so as far as it can.
    pub(super) fn give_up(&self, why: &Error) {
        let _ = fs::write(self.file(BROKEN), format!("{why}\n"));
        let _ = fs::rename(&self.path, place_of_broken(&self.target));
    }
}

/// What made a run, and where.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Manifest {
    /// The version of the pillion that made the run.
    version: String,
    engine: Engine,
    /// What identifies the lab kernel, its source, patches and configuration; `None` on other
    /// kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    lab_kernel: Option<String>,
    kernel: String,
    machine: String,
    processors: usize,
    /// What emulated the path: `netem`, or pillion's own `path`.
    emulator: &'static str,
    seed: u64,
    /// `CLOCK_REALTIME` at the run's begin, which traces have; and `CLOCK_MONOTONIC` at that
    /// moment, which all else has; in nanoseconds.
    begun_realtime_ns: u64,
    begun_ns: u64,
    /// `CLOCK_MONOTONIC` when the streams' barrier opened, in nanoseconds.
    barrier_ns: u64,
    ended_ns: u64,
}

/// A moment by both clocks.
pub(super) struct Begin {
    realtime_ns: u64,
    monotonic_ns: u64,
}

impl Begin {
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
        how: &super::How,
        begin: &Begin,
        emulator: &'static str,
        seed: u64,
        barrier_ns: u64,
    ) -> Self {
        let machine = nix::sys::utsname::uname();
        let machine = machine.map(|name| name.machine().to_string_lossy().into_owned());
        Self {
            version: how.version.to_owned(),
            engine: how.engine,
            lab_kernel: how.lab_kernel.clone(),
            kernel: kernel_release(),
            machine: machine.unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(1, Into::into),
            emulator,
            seed,
            begun_realtime_ns: begin.realtime_ns,
            begun_ns: begin.monotonic_ns,
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
    fn what_there_is_of_a_run_that_was_killed_is_kept_and_one_that_is_made_is_let_be() {
        let store = tempfile::tempdir().unwrap();
        let target = store.path().join("plain");
        let killed = Folder::begin(&target).unwrap();
        killed.write(RUN_FILE, "seed = 7\n").unwrap();
        let busy = Folder::begin(&target).unwrap_err().to_string();
        assert!(busy.contains("another process"), "{busy}");
        drop(killed);
        let next = Folder::begin(&target).unwrap();
        let kept = store.path().join("plain.broken");
        assert_eq!(
            fs::read_to_string(kept.join(RUN_FILE)).unwrap(),
            "seed = 7\n"
        );
        assert!(kept.join(BROKEN).is_file());
        next.write(RUN_FILE, "seed = 8\n").unwrap();
        next.keep().unwrap();
        assert!(target.is_dir());
    }
}
