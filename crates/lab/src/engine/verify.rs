use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::{Difference, EngineError, HOST_FILE, Image, Machine, differences, run_virtually};

/// Makes a run again, as [`run_virtually`] does, and finds the differences to the folder
/// that is there.
///
/// # Errors
/// As [`run_virtually`]; [`EngineError::System`] where a file cannot be read.
pub fn verify(
    machine: &Machine,
    image: &Image,
    pillion: &str,
    run: &str,
    folder: &Path,
    stop: &AtomicBool,
    reached: impl FnMut(Duration),
) -> Result<Vec<Difference>, EngineError> {
    let beside = tempfile::tempdir().map_err(EngineError::system("make a temporary folder"))?;
    let again = beside.path().join("again");
    run_virtually(machine, image, pillion, run, &again, stop, reached)
        .map_err(|failed| failed.error)?;
    differences(folder, &again, &[HOST_FILE]).map_err(EngineError::system("compare the runs"))
}
