use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sched::sched_getcpu;
use pillion_cli::settings::times::parse_s;
use pillion_lab::campaign::Kernels;
use pillion_lab::engine::{Image, LabKernel, Machines, cores};

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
    /// What the lab kernels run on.
    pub fn machines(&self) -> Result<Machines> {
        Ok(Machines {
            kernel: LabKernel::find(self.kernel.as_deref())?,
            memory_mib: self.memory,
            patience: self.patience,
        })
    }

    /// Lab kernels that make runs, so many at a time, or else one on each core.
    pub fn kernels(&self, jobs: Option<NonZeroUsize>) -> Result<Kernels> {
        let mut cores = cores()?;
        cores.truncate(jobs.map_or(usize::MAX, NonZeroUsize::get));
        Ok(Kernels {
            machines: self.machines()?,
            image: Image::new(&this_program()?)?,
            cores,
        })
    }
}

/// The path of this program, which is each lab kernel's init.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("find this program")
}

/// The processor core that pillion runs on just now; a lab kernel is fastest on one core.
pub fn this_core() -> Option<usize> {
    sched_getcpu().ok()
}
