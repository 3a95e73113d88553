//! Runs of an experiment, each with a folder of its own: on lab kernels, or on this host's kernel.

mod kernels;
mod live;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::settings::experiment::PlannedRun;

use crate::run::folder_name;

pub use kernels::Kernels;
pub use live::{live_provenance, make_all_live, make_parallel_live};

/// Settings that all runs of a campaign share.
pub struct Campaign<'a> {
    /// pillion's version, which each run's manifest records.
    pub version: &'a str,
    /// Parent folder of the runs' folders.
    pub folder: &'a Path,
    /// Receiver of progress reports.
    pub progress: &'a dyn Progress,
    /// Set to stop all runs.
    pub stop: &'a Arc<AtomicBool>,
    /// Called for each finished run, while the next ones run.
    pub after: &'a (dyn Fn(&PlannedRun) + Sync),
}

impl Campaign<'_> {
    /// Returns the folder of a run.
    fn run_folder(&self, planned: &PlannedRun) -> PathBuf {
        self.folder.join(folder_name(planned))
    }
}

/// Receiver of progress reports of parallel runs.
pub trait Progress: Sync {
    /// Starts the reports of a run. The result is dropped when the run finishes.
    fn start<'a>(&'a self, planned: &PlannedRun) -> Box<dyn RunProgress + 'a>;
}

/// Receiver of progress reports of one run.
pub trait RunProgress: Sync {
    /// Reports the time since the run's start: virtual time, or the host's.
    fn reached(&self, time: Duration);
}
