//! `pillion-lab plan` and `grid`: what an experiment's runs are, for people and as jobs.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use pillion_cli::print::{print_json, print_line};
use pillion_lab::grid;
use pillion_lab::run::WORKFLOW_FILE;
use pillion_lab::settings::experiment::{self, Planned, Sysctls};
use pillion_stats::report::{Column, Table, number};
use serde::Serialize;

/// Say which runs an experiment consists of, or what is wrong with its file
///
/// Runs nothing. Ends with exit status 2 if the file has mistakes, a line for each.
#[derive(clap::Args)]
pub struct PlanArgs {
    /// The experiment's file; docs/experiments.md describes it
    #[arg(value_name = "EXPERIMENT")]
    file: PathBuf,

    /// Print the runs as JSON, each with the kernel parameters that it sets on each host, and the
    /// file that describes it alone
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct PlannedRun<'a> {
    name: &'a str,
    duration_s: f64,
    streams: usize,
    /// Kernel parameters that the run sets, by host.
    sysctls: BTreeMap<&'a str, Sysctls>,
    file: String,
}

impl PlanArgs {
    pub fn execute(self) -> Result<ExitCode> {
        let experiment = experiment::load(&self.file)?;
        let runs: Vec<_> = experiment.runs.iter().map(planned_run).collect();
        if self.json {
            print_json(&runs)?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(title) = &experiment.title {
            print_line!("{title}")?;
        }
        let columns = [
            Column::left("run"),
            Column::right("streams"),
            Column::right("duration").unit("s"),
        ];
        let mut table = Table::new("Runs", columns);
        for run in &runs {
            let streams = number::count(run.streams as u64);
            table.row([run.name.to_owned(), streams, run.duration_s.to_string()]);
        }
        print_line!("{}", table.to_text())?;
        let seconds: f64 = runs.iter().map(|run| run.duration_s).sum();
        let count = number::counted(runs.len() as u64, "run");
        print_line!("{count}, {seconds} s of sending")?;
        Ok(ExitCode::SUCCESS)
    }
}

fn planned_run(planned: &Planned) -> PlannedRun<'_> {
    let plan = &planned.plan;
    PlannedRun {
        name: planned.name.as_str(),
        duration_s: plan.duration.as_secs_f64(),
        streams: plan.streams.iter().map(|group| group.traffic.streams).sum(),
        sysctls: plan.sysctls_of_hosts(),
        file: planned.run.to_text(),
    }
}

/// Write an experiment's runs as jobs for many machines
///
/// Writes a workflow for Snakemake (the Debian package `snakemake`) into a folder, with a file for
/// each run: one rule, and a job for each. Snakemake's own executors make the jobs on this machine,
/// with Slurm or in Kubernetes. Jobs do not depend on each other, and finished ones are kept, also if
/// the experiment gets more runs. `pillion-lab show` and `pillion-lab compare` read the folder like
/// one that `pillion-lab run` made.
#[derive(clap::Args)]
pub struct GridArgs {
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

impl GridArgs {
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
