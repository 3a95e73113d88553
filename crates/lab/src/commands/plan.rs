//! `pillion-lab plan` and `grid`: runs of an experiment, as a list and as jobs.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use pillion_cli::print::{print_json, print_line};
use pillion_lab::grid;
use pillion_lab::run::WORKFLOW_FILE;
use pillion_lab::settings::experiment::{self, PlannedRun, Sysctls};
use pillion_stats::report::{Column, Table, number};
use serde::Serialize;

/// List the runs of an experiment, or the mistakes in its file
///
/// Runs nothing. With mistakes, prints one line for each and exits with status 2.
#[derive(clap::Args)]
pub struct PlanArgs {
    /// Experiment file; docs/lab/experiments.md describes it
    #[arg(value_name = "EXPERIMENT")]
    file: PathBuf,

    /// Print the runs as JSON, each with its kernel parameters by host, and with its own file
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct RunJson<'a> {
    name: &'a str,
    duration_s: f64,
    streams: usize,
    /// Kernel parameters by host.
    sysctls: BTreeMap<&'a str, Sysctls>,
    file: String,
}

impl PlanArgs {
    pub fn execute(self) -> Result<ExitCode> {
        let experiment = experiment::load(&self.file)?;
        let runs: Vec<_> = experiment.runs.iter().map(run_json).collect();
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

fn run_json(planned: &PlannedRun) -> RunJson<'_> {
    let plan = &planned.plan;
    RunJson {
        name: planned.name.as_str(),
        duration_s: plan.duration.as_secs_f64(),
        streams: plan.streams.iter().map(|group| group.traffic.streams).sum(),
        sysctls: plan.sysctls_of_hosts(),
        file: planned.run.to_text(),
    }
}

/// Write the runs of an experiment as jobs for many machines
///
/// Writes a workflow for Snakemake (Debian package `snakemake`) with one rule, and a file for each
/// run. Snakemake's executors run the jobs on this machine, with Slurm or in Kubernetes. Jobs are
/// independent. Finished ones are reused, also when the experiment has more runs later.
/// `pillion-lab show` and `pillion-lab compare` read the folder like one of `pillion-lab run`.
#[derive(clap::Args)]
pub struct GridArgs {
    /// Experiment file
    #[arg(value_name = "EXPERIMENT")]
    file: PathBuf,

    /// Write the workflow to FOLDER; its jobs store the runs there
    #[arg(long, value_name = "FOLDER")]
    output: PathBuf,

    /// Memory of each job's lab kernel in MiB, including the run's results [default: `memory` of
    /// the experiment, or 1024]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..=65536))]
    memory: Option<u32>,
}

impl GridArgs {
    pub fn execute(self) -> Result<ExitCode> {
        let experiment = experiment::load(&self.file)?;
        let text = fs::read_to_string(&self.file)
            .with_context(|| format!("read {}", self.file.display()))?;
        grid::write(&experiment, &text, self.memory, &self.output)?;
        let file = self.output.join(WORKFLOW_FILE);
        let (runs, folder) = (experiment.runs.len(), self.output.display());
        print_line!(
            "{}: {}",
            number::counted(runs as u64, "job"),
            file.display()
        )?;
        print_line!("run them: cd {folder} && snakemake --cores all")?;
        Ok(ExitCode::SUCCESS)
    }
}
