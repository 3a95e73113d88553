//! The lab kernels of this host, and the processor cores for several at a time.

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

/// Memory of a lab kernel in MiB where nothing else is said.
const MEMORY_MIB: u32 = 1024;

/// The memory in MiB of the machine for a run: what was asked for, else what the run asks for.
#[must_use]
pub fn memory_mib(asked: Option<u32>, run: &Run) -> u32 {
    asked.or(run.memory).unwrap_or(MEMORY_MIB)
}

/// Machines, each with the kernel and the memory that its run asks for.
#[derive(Debug, Clone)]
pub struct Machines {
    /// The kernel of runs that ask for no other clock.
    pub kernel: LabKernel,
    /// The memory of each in MiB, whatever its run asks for; `None` for what the run asks for.
    pub memory_mib: Option<u32>,
    /// Processor time that each kernel may use while virtual time stands still, at least.
    pub patience: Duration,
}

impl Machines {
    /// The machine for a run, on a processor core by number, or on any.
    ///
    /// # Errors
    /// [`EngineError::NoTicks`] where the kernel that the run asks for is not there.
    pub fn for_run(&self, run: &Run, core: Option<usize>) -> Result<Machine, EngineError> {
        Ok(Machine {
            kernel: LabKernel::for_run(&self.kernel, run.kernel)?,
            high_resolution_timers: run.kernel.high_resolution_timers,
            memory_mib: memory_mib(self.memory_mib, run),
            ..self.for_program(run.seed.into(), core)
        })
    }

    /// The machine for any other program, with the seed of its random numbers; on a processor core
    /// by number, or on any.
    #[must_use]
    pub fn for_program(&self, seed: u64, core: Option<usize>) -> Machine {
        Machine {
            kernel: self.kernel.clone(),
            high_resolution_timers: true,
            memory_mib: self.memory_mib.unwrap_or(MEMORY_MIB),
            seed,
            core,
            patience: self.patience,
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

/// The processor cores that this process may run on.
///
/// # Errors
/// [`EngineError::System`].
pub fn cores() -> Result<Vec<usize>, EngineError> {
    let allowed = sched_getaffinity(Pid::from_raw(0))
        .map_err(|errno| EngineError::system("ask for the processor's cores")(errno.into()))?;
    let cores = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false));
    Ok(cores.collect())
}

/// Does every piece of work, in their order, as many at a time as there are cores, each on a core
/// of its own. Returns the results in the order of the work.
pub fn side_by_side<W: Sync, R: Send>(
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
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(piece) = work.get(place) else {
                        return;
                    };
                    let result = each(*core, piece);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((place, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}
