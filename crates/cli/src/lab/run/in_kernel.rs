//! The virtual engine.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use pillion_lab::engine::{
    EngineError, Failed, Image, LabKernel, Machine, cores, run_virtually, side_by_side,
};
use pillion_lab::store::Maker;
use pillion_settings::experiment::Planned;

use super::Campaign;
use crate::VERSION;
use crate::lab::machine::MachineArgs;

/// Kernels that are to make runs.
pub struct Kernels {
    arguments: MachineArgs,
    machine: Machine,
    image: Image,
    cores: Vec<usize>,
}

impl Kernels {
    pub fn new(machine: &MachineArgs, jobs: Option<NonZeroUsize>) -> Result<Self> {
        let arguments = machine.clone();
        let machine = arguments.machine(0)?;
        let pillion = std::env::current_exe().context("find the pillion binary")?;
        let mut cores = cores()?;
        cores.truncate(jobs.map_or(usize::MAX, NonZeroUsize::get));
        Ok(Self {
            arguments,
            machine,
            image: Image::new(&pillion)?,
            cores,
        })
    }

    /// What makes a run; nothing does where its kernel is not there.
    pub fn maker(&self, planned: &Planned) -> Maker {
        let kernel = LabKernel::for_run(&self.machine.kernel, planned.run.kernel).ok();
        Maker {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            lab_kernel: kernel.and_then(|it| it.hash().map(str::to_owned)),
        }
    }

    pub fn make_all(&self, runs: &[Planned], campaign: &Campaign) -> Vec<Result<PathBuf>> {
        side_by_side(&self.cores, runs, |core, planned| {
            let made = self.make(core, planned, campaign);
            made.map_err(anyhow::Error::from)
        })
    }

    fn make(&self, core: usize, planned: &Planned, campaign: &Campaign) -> Result<PathBuf, Failed> {
        if campaign.stop.load(Ordering::Relaxed) {
            return Err(EngineError::Stopped.into());
        }
        let machine = Machine {
            core: Some(core),
            ..self.arguments.for_run(&self.machine, &planned.run)?
        };
        let line = campaign.board.begin(planned);
        let folder = campaign.place(planned);
        let (run, stop) = (&planned.run, campaign.stop);
        run_virtually(&machine, &self.image, VERSION, run, &folder, stop, |time| {
            line.reached(time);
        })?;
        (campaign.after)(planned);
        Ok(folder)
    }
}
