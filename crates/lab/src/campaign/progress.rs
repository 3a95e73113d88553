use std::time::Duration;

use crate::settings::experiment::PlannedRun;

/// Who is told how far runs have come that are made side by side.
pub trait Progress: Sync {
    /// A run begins. What is returned is told of this run, and dropped when the run is over.
    fn begin<'a>(&'a self, planned: &PlannedRun) -> Box<dyn RunProgress + 'a>;
}

/// Who is told how far one run has come.
pub trait RunProgress: Sync {
    /// The run has come to this time since its beginning: the virtual engine's own, or the host's.
    fn reached(&self, time: Duration);
}
