//! The lab kernels of this host.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::EngineError;
use crate::cache::{self, cache};
use crate::hash::hash_of;
use crate::settings::experiment::Kernel;

/// The lab kernel: User Mode Linux with time travel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabKernel {
    /// The kernel's executable file.
    pub path: PathBuf,
}

impl LabKernel {
    /// Finds a kernel: the given one, otherwise `PILLION_LAB_KERNEL`, otherwise `current`, the last
    /// one that `make lab-kernel` built. A word without a path names a built kernel: `sanitizing`,
    /// or the name of a folder of the cache.
    ///
    /// # Errors
    /// [`EngineError::NoKernel`] if the file does not exist; [`EngineError::Processor`].
    pub fn find(given: Option<&Path>) -> Result<Self, EngineError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(EngineError::Processor);
        }
        let requested = given
            .map(Path::to_owned)
            .or_else(|| cache::path("PILLION_LAB_KERNEL"))
            .unwrap_or_else(|| PathBuf::from("current"));
        let is_name = requested.components().count() == 1 && !requested.is_file();
        let path = if is_name {
            cached_kernel(&requested)
        } else {
            requested
        };
        Self::at(&path).ok_or(EngineError::NoKernel(path))
    }

    /// Returns the kernel for a run: `default_kernel`, unless the run needs another clock frequency
    /// than `make lab-kernel` builds.
    ///
    /// # Errors
    /// [`EngineError::NoTicks`] if the other kernel does not exist.
    pub fn for_run(default_kernel: &Self, requested: Kernel) -> Result<Self, EngineError> {
        let ticks = requested.ticks_per_second;
        if ticks == Kernel::TICKS_PER_SECOND {
            return Ok(default_kernel.clone());
        }
        let path = cached_kernel(Path::new(&format!("ticks-{ticks}")));
        Self::at(&path).ok_or(EngineError::NoTicks { ticks, path })
    }

    fn at(path: &Path) -> Option<Self> {
        // The folder's real name identifies a kernel; "current" does not.
        let path = path.canonicalize().ok()?;
        path.is_file().then_some(Self { path })
    }

    /// Returns the identity of a kernel built by `make lab-kernel`: a hash of its source, patches
    /// and configuration. `None` for other kernels.
    #[must_use]
    pub fn hash(&self) -> Option<&str> {
        let folder = self.path.parent()?;
        let is_lab_build = folder.join("patches").is_file();
        folder.file_name()?.to_str().filter(|_| is_lab_build)
    }

    /// Returns a description of the kernel's build, from the files next to the executable that
    /// `make lab-kernel` leaves. The configuration, like each patch, is the start of its SHA-256.
    /// Missing files are left out.
    #[must_use]
    pub fn build_info(&self) -> BTreeMap<&'static str, String> {
        let read = |name: &str| fs::read_to_string(self.path.with_file_name(name)).ok();
        let texts = ["release", "source", "patches"].into_iter();
        let texts = texts.filter_map(|name| Some((name, read(name)?.trim().to_owned())));
        let config = read("config").map(|text| ("config", hash_of(&text)));
        texts.chain(config).collect()
    }
}

/// Returns the path of a built kernel's executable, by its name in the cache.
fn cached_kernel(name: &Path) -> PathBuf {
    let kernels = cache("lab-kernel", "PILLION_LAB_KERNEL_CACHE");
    kernels.join(name).join("linux")
}
