use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::settings::experiment::PlannedRun;

use super::Campaign;
use crate::engine::{
    EngineError, Image, LabKernel, Machines, RunFailure, run_parallel, run_virtually,
};
use crate::store::Provenance;

/// Lab kernels that run in parallel, one for each core.
pub struct Kernels {
    /// Machines of the kernels.
    pub machines: Machines,
    /// Root file system of each kernel; its init is pillion.
    pub image: Image,
    /// Numbers of the processor cores; each kernel has one of its own.
    pub cores: Vec<usize>,
}

impl Kernels {
    /// Returns the version and the lab kernel that make this run; no kernel if the required one is not
    /// built.
    #[must_use]
    pub fn provenance(&self, planned: &PlannedRun) -> Provenance {
        let kernel = LabKernel::for_run(&self.machines.kernel, planned.run.kernel).ok();
        Provenance {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            lab_kernel: kernel.and_then(|it| it.hash().map(str::to_owned)),
        }
    }

    /// Makes runs, one for each core at a time. Returns, in the order of the runs, each run's folder or
    /// the failure of [`run_virtually`].
    #[must_use]
    pub fn make_all(
        &self,
        runs: &[PlannedRun],
        campaign: &Campaign,
    ) -> Vec<Result<PathBuf, RunFailure>> {
        run_parallel(&self.cores, runs, |core, planned| {
            self.make(core, planned, campaign)
        })
    }

    fn make(
        &self,
        core: usize,
        planned: &PlannedRun,
        campaign: &Campaign,
    ) -> Result<PathBuf, RunFailure> {
        if campaign.stop.load(Ordering::Relaxed) {
            return Err(EngineError::Stopped.into());
        }
        let machine = self.machines.for_run(&planned.run, Some(core))?;
        let progress = campaign.progress.start(planned);
        let folder = campaign.run_folder(planned);
        run_virtually(
            &machine,
            &self.image,
            campaign.version,
            &planned.run,
            &folder,
            campaign.stop,
            |time| progress.reached(time),
        )?;
        (campaign.after)(planned);
        Ok(folder)
    }
}
