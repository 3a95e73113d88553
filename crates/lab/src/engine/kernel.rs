use std::env;
use std::path::{Path, PathBuf};

use super::EngineError;

/// The lab kernel: User Mode Linux with time travel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabKernel {
    /// Its executable file.
    pub path: PathBuf,
}

impl LabKernel {
    /// The kernel to use: the given one, else that of `PILLION_LAB_KERNEL`, else the last that
    /// `make lab-kernel` built.
    ///
    /// # Errors
    /// [`EngineError::NoKernel`] where it is not there.
    pub fn find(given: Option<&Path>) -> Result<Self, EngineError> {
        let path = given
            .map(Path::to_owned)
            .or_else(|| variable("PILLION_LAB_KERNEL"))
            .unwrap_or_else(|| cache().join("current").join("linux"));
        // Its folder's name tells one kernel from another, "current" does not.
        match path.canonicalize() {
            Ok(path) if path.is_file() => Ok(Self { path }),
            _ => Err(EngineError::NoKernel(path)),
        }
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    let value = env::var_os(name).filter(|value| !value.is_empty())?;
    Some(PathBuf::from(value))
}

fn cache() -> PathBuf {
    variable("PILLION_LAB_KERNEL_CACHE").unwrap_or_else(|| {
        variable("XDG_CACHE_HOME")
            .or_else(|| variable("HOME").map(|home| home.join(".cache")))
            .unwrap_or_else(|| PathBuf::from("/var/cache"))
            .join("pillion/lab-kernel")
    })
}
