use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use nix::sched::sched_getcpu;
use pillion_lab::engine::{EngineError, LabKernel, MEMORY_MIB, Machine};
use pillion_settings::experiment::Run;
use pillion_settings::times::parse_s;

/// Options of everything that runs in the lab kernel.
#[derive(Debug, Clone, clap::Args)]
pub struct MachineArgs {
    /// The lab kernel, or `sanitizing` for the last that was built to look for faults of its own
    /// [default: that of PILLION_LAB_KERNEL, else the last that `make lab-kernel` built]; runs that
    /// ask for other ticks have a kernel of their own
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,

    /// The lab kernel's memory in MiB; what a run leaves must fit into it [default: the `memory` of
    /// the experiment, else 1024]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..=65536))]
    memory: Option<u32>,

    /// Seconds of work during which virtual time may stand still
    #[arg(long, value_name = "S", default_value = "20", value_parser = parse_s)]
    patience: Duration,
}

impl MachineArgs {
    /// The kernel's memory in MiB, where a run asks for so much.
    pub fn memory_mib(&self, of_run: Option<u32>) -> u32 {
        self.memory.or(of_run).unwrap_or(MEMORY_MIB)
    }

    /// The machine for a run, of one like the given.
    pub fn for_run(&self, machine: &Machine, run: &Run) -> Result<Machine, EngineError> {
        Ok(Machine {
            kernel: LabKernel::for_run(&machine.kernel, run.kernel)?,
            high_resolution_timers: run.kernel.high_resolution_timers,
            memory_mib: self.memory_mib(run.memory),
            seed: run.seed.into(),
            ..machine.clone()
        })
    }

    /// A machine on the core that pillion runs on just now.
    pub fn machine(&self, seed: u64) -> Result<Machine> {
        Ok(Machine {
            kernel: LabKernel::find(self.kernel.as_deref())?,
            high_resolution_timers: true,
            memory_mib: self.memory_mib(None),
            seed,
            core: sched_getcpu().ok(),
            patience: self.patience,
            limit: None,
        })
    }
}
