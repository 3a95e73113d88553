//! The lab kernels of this host, and processor cores for several at a time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use super::{EngineError, Machine};
use crate::cache::{self, cache};
use crate::hash::hash_of;
use crate::settings::experiment::{Kernel, Run};

/// Default memory of a lab kernel in MiB.
const MEMORY_MIB: u32 = 1024;

/// Returns the memory in MiB of the machine for a run: the requested size, or the run's own.
#[must_use]
pub fn memory_mib(requested: Option<u32>, run: &Run) -> u32 {
    requested.or(run.memory).unwrap_or(MEMORY_MIB)
}

/// Creates machines with the kernel and memory that each run needs.
#[derive(Debug, Clone)]
pub struct Machines {
    /// The kernel of runs without a special clock.
    pub kernel: LabKernel,
    /// The memory of every machine in MiB; `None` for each run's own value.
    pub memory_mib: Option<u32>,
    /// Processor time that each kernel may use while virtual time does not advance, at least.
    pub stall_timeout: Duration,
}

impl Machines {
    /// Returns the machine for a run, on the given processor core or on any.
    ///
    /// # Errors
    /// [`EngineError::NoTicks`] if the run's kernel does not exist.
    pub fn for_run(&self, run: &Run, core: Option<usize>) -> Result<Machine, EngineError> {
        Ok(Machine {
            kernel: LabKernel::for_run(&self.kernel, run.kernel)?,
            high_resolution_timers: run.kernel.high_resolution_timers,
            memory_mib: memory_mib(self.memory_mib, run),
            ..self.for_program(run.seed.into(), core)
        })
    }

    /// Returns the machine for any other program, with the seed of its random numbers, on the given
    /// processor core or on any.
    #[must_use]
    pub fn for_program(&self, seed: u64, core: Option<usize>) -> Machine {
        Machine {
            kernel: self.kernel.clone(),
            high_resolution_timers: true,
            memory_mib: self.memory_mib.unwrap_or(MEMORY_MIB),
            seed,
            core,
            stall_timeout: self.stall_timeout,
            limit: None,
        }
    }
}

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

/// Returns the processor cores that this process may run on.
///
/// # Errors
/// [`EngineError::System`].
pub fn cores() -> Result<Vec<usize>, EngineError> {
    let allowed = sched_getaffinity(Pid::from_raw(0))
        .map_err(|errno| EngineError::system("query the processor's cores")(errno.into()))?;
    let cores = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false));
    Ok(cores.collect())
}

/// Processes all items in order, as many at a time as there are cores, each on its own core.
/// Returns the results in the order of the items.
pub fn run_parallel<W: Sync, R: Send>(
    cores: &[usize],
    work: &[W],
    each: impl Fn(usize, &W) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for core in cores.iter().take(work.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = work.get(index) else {
                        return;
                    };
                    let result = each(*core, item);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}
