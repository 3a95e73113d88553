use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use nix::sched::sched_getcpu;
use pillion_lab::engine::{LabKernel, Machine};

use pillion_settings::times::parse_s;

/// Options of everything that runs in the lab kernel.
#[derive(clap::Args)]
pub struct MachineArgs {
    /// The lab kernel, or `sanitizing` for the last that was built to look for faults of its own
    /// [default: that of PILLION_LAB_KERNEL, else the last that `make lab-kernel` built]
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,

    /// The lab kernel's memory in MiB; what a run leaves must fit into it
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(64..=65536))]
    memory: u32,

    /// Seconds of work during which virtual time may stand still
    #[arg(long, value_name = "S", default_value = "20", value_parser = parse_s)]
    patience: Duration,
}

impl MachineArgs {
    /// A machine on the core that pillion runs on just now.
    pub fn machine(&self, seed: u64) -> Result<Machine> {
        Ok(Machine {
            kernel: LabKernel::find(self.kernel.as_deref())?,
            memory_mib: self.memory,
            seed,
            core: sched_getcpu().ok(),
            patience: self.patience,
            limit: None,
        })
    }
}
