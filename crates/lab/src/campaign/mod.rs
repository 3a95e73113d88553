//! A campaign: the runs of an experiment, each made into a folder of its own.

mod kernels;
mod live;
mod progress;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::settings::experiment::PlannedRun;

use crate::run::folder_name;

pub use kernels::Kernels;
pub use live::{live_provenance, make_all_live, make_both_live};
pub use progress::{Progress, RunProgress};

/// What the runs that are made together have in common.
pub struct Campaign<'a> {
    /// pillion's version, for the record.
    pub version: &'a str,
    /// The folder that gets the runs' folders.
    pub folder: &'a Path,
    /// Who is told how far they have come.
    pub progress: &'a dyn Progress,
    /// Set to end all of them early.
    pub stop: &'a Arc<AtomicBool>,
    /// What is to be done with each run once it is made, beside the next ones.
    pub after: &'a (dyn Fn(&PlannedRun) + Sync),
}

impl Campaign<'_> {
    /// The path of the folder that a run is to have.
    fn place(&self, planned: &PlannedRun) -> PathBuf {
        self.folder.join(folder_name(planned))
    }
}
