use std::collections::BTreeMap;
use std::env;
use std::fs;
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

    /// What tells it from others that `make lab-kernel` builds: a hash of its source, patches and
    /// configuration. `None` where something else made it.
    #[must_use]
    pub fn hash(&self) -> Option<&str> {
        let folder = self.path.parent()?;
        let built_so = folder.join("patches").is_file();
        folder.file_name()?.to_str().filter(|_| built_so)
    }

    /// What was built, for the record: the files beside the executable, as `make lab-kernel`
    /// leaves them. Those that are not there are left out.
    #[must_use]
    pub fn described(&self) -> BTreeMap<&'static str, String> {
        ["release", "source", "patches"]
            .into_iter()
            .filter_map(|name| {
                let text = fs::read_to_string(self.path.with_file_name(name)).ok()?;
                Some((name, text.trim().to_owned()))
            })
            .collect()
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
