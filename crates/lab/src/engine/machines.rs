use std::time::Duration;

use crate::settings::experiment::Run;

use super::{EngineError, LabKernel, Machine};

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
