use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use pillion_cli::print::print_line;
use pillion_lab::grid::{self, WORKFLOW_FILE};
use pillion_lab::settings::experiment;
use pillion_stats::report::number;

/// Write an experiment's runs as jobs for many machines
///
/// Writes a workflow for Snakemake (the Debian package `snakemake`) into a folder, with a file for
/// each run: one rule, and a job for each. Snakemake's own executors make the jobs on this machine,
/// with Slurm or in Kubernetes. Jobs do not depend on each other, and finished ones are kept, also if
/// the experiment gets more runs. `pillion-lab show` and `pillion-lab compare` read the folder like
/// one that `pillion-lab run` made.
#[derive(clap::Args)]
pub struct Args {
    /// The experiment
    #[arg(value_name = "EXPERIMENT")]
    file: PathBuf,

    /// Where the workflow is written, and the runs are made
    #[arg(long, value_name = "FOLDER")]
    jobs: PathBuf,

    /// The memory of each job's lab kernel in MiB; what a run leaves must fit into it [default: the
    /// `memory` of the experiment, else 1024]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..=65536))]
    memory: Option<u32>,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let experiment = experiment::load(&self.file)?;
        let text = fs::read_to_string(&self.file)
            .with_context(|| format!("read {}", self.file.display()))?;
        grid::write(&experiment, &text, self.memory, &self.jobs)?;
        let file = self.jobs.join(WORKFLOW_FILE);
        let (runs, folder) = (experiment.runs.len(), self.jobs.display());
        print_line!(
            "{}: {}",
            number::counted(runs as u64, "job"),
            file.display()
        )?;
        print_line!("make them: cd {folder} && snakemake --cores all")?;
        Ok(ExitCode::SUCCESS)
    }
}
