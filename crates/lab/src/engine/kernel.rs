use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::settings::experiment::Kernel;

use super::EngineError;
use crate::cache::{self, cache};
use crate::hash::hash_of;

/// The lab kernel: User Mode Linux with time travel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabKernel {
    /// The kernel's executable file.
    pub path: PathBuf,
}

impl LabKernel {
    /// The kernel to use: the given one, else that of `PILLION_LAB_KERNEL`, else the last that
    /// `make lab-kernel` built, which is `current`. A word stands for one that was built so:
    /// `sanitizing`, or the name of a folder of the cache.
    ///
    /// # Errors
    /// [`EngineError::NoKernel`] where it is not there.
    pub fn find(given: Option<&Path>) -> Result<Self, EngineError> {
        let wanted = given
            .map(Path::to_owned)
            .or_else(|| cache::path("PILLION_LAB_KERNEL"))
            .unwrap_or_else(|| PathBuf::from("current"));
        let is_word = wanted.components().count() == 1 && !wanted.is_file();
        let path = if is_word { kept(&wanted) } else { wanted };
        Self::at(&path).ok_or(EngineError::NoKernel(path))
    }

    /// The kernel for a run that asks for this one: `usual`, unless its clock is to tick otherwise
    /// than that of the kernel that `make lab-kernel` builds.
    ///
    /// # Errors
    /// [`EngineError::NoTicks`] where the other is not there.
    pub fn for_run(usual: &Self, wanted: Kernel) -> Result<Self, EngineError> {
        let ticks = wanted.ticks_per_second;
        if ticks == Kernel::TICKS_PER_SECOND {
            return Ok(usual.clone());
        }
        let path = kept(Path::new(&format!("ticks-{ticks}")));
        Self::at(&path).ok_or(EngineError::NoTicks { ticks, path })
    }

    fn at(path: &Path) -> Option<Self> {
        // Its folder's name tells one kernel from another, "current" does not.
        let path = path.canonicalize().ok()?;
        path.is_file().then_some(Self { path })
    }

    /// What tells the kernel from others that `make lab-kernel` builds: a hash of its source,
    /// patches and configuration. `None` where something else made it.
    #[must_use]
    pub fn hash(&self) -> Option<&str> {
        let folder = self.path.parent()?;
        let built_so = folder.join("patches").is_file();
        folder.file_name()?.to_str().filter(|_| built_so)
    }

    /// What the kernel was built from, for the record: the files beside the executable, as `make
    /// lab-kernel` leaves them; of the configuration, as of each patch, the beginning of its
    /// SHA-256. Files that are not there are left out.
    #[must_use]
    pub fn described(&self) -> BTreeMap<&'static str, String> {
        let read = |name: &str| fs::read_to_string(self.path.with_file_name(name)).ok();
        let texts = ["release", "source", "patches"].into_iter();
        let texts = texts.filter_map(|name| Some((name, read(name)?.trim().to_owned())));
        let config = read("config").map(|text| ("config", hash_of(&text)));
        texts.chain(config).collect()
    }
}

/// The executable of a kernel that was built, by its name in the cache.
fn kept(name: &Path) -> PathBuf {
    let kernels = cache("lab-kernel", "PILLION_LAB_KERNEL_CACHE");
    kernels.join(name).join("linux")
}
