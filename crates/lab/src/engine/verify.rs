use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::settings::experiment::Run;

use super::{Difference, EngineError, HOST_FILE, Image, Machine, differences, run_virtually};
use crate::run::RUN_FILE;

/// Makes a run again, as [`run_virtually`] does, and finds the differences to the folder
/// that is there: but in what tells of the host, and in the run's own file, which may say the same
/// in other words.
///
/// # Errors
/// As [`run_virtually`]; [`EngineError::System`] where a file cannot be read.
pub fn verify(
    machine: &Machine,
    image: &Image,
    pillion: &str,
    run: &Run,
    folder: &Path,
    stop: &AtomicBool,
    reached: impl FnMut(Duration),
) -> Result<Vec<Difference>, EngineError> {
    let beside = tempfile::tempdir().map_err(EngineError::system("make a temporary folder"))?;
    let again = beside.path().join("again");
    run_virtually(machine, image, pillion, run, &again, stop, reached)
        .map_err(|failed| failed.error)?;
    differences(folder, &again, &[HOST_FILE, RUN_FILE])
        .map_err(EngineError::system("compare the runs"))
}
