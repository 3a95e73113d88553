use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::settings::experiment::PlannedRun;

use super::Campaign;
use crate::engine::{
    EngineError, Image, LabKernel, Machines, RunFailure, run_parallel, run_virtually,
};
use crate::store::Provenance;

/// Lab kernels that make runs side by side.
pub struct Kernels {
    /// What the kernels run on.
    pub machines: Machines,
    /// What each finds as its root file system; its init is pillion.
    pub image: Image,
    /// The processor cores, by number, of which each kernel has one for itself.
    pub cores: Vec<usize>,
}

impl Kernels {
    /// What makes a run; no lab kernel does where the one that the run asks for is not there.
    #[must_use]
    pub fn provenance(&self, planned: &PlannedRun) -> Provenance {
        let kernel = LabKernel::for_run(&self.machines.kernel, planned.run.kernel).ok();
        Provenance {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            lab_kernel: kernel.and_then(|it| it.hash().map(str::to_owned)),
        }
    }

    /// Makes runs, as many at a time as there are cores. The results are in the order of the runs:
    /// the path of each run's folder, or, as in [`run_virtually`], why it is not there.
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
        let progress = campaign.progress.begin(planned);
        let folder = campaign.place(planned);
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
