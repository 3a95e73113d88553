//! Machines for runs, and processor cores for several at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use super::{EngineError, LabKernel, Machine};
use crate::settings::experiment::Run;

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
