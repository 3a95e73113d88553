use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::print::{print_json, print_line};
use pillion_lab::settings::experiment::{self, Planned, Sysctls};
use pillion_stats::report::{Column, Table, number};
use serde::Serialize;

/// Say which runs an experiment consists of, or what is wrong with its file
///
/// Runs nothing. Ends with exit status 2 if the file has mistakes, a line for each.
#[derive(clap::Args)]
pub struct Args {
    /// The experiment's file; docs/experiments.md describes it
    #[arg(value_name = "EXPERIMENT")]
    file: PathBuf,

    /// Print the runs as JSON, each with the kernel parameters that it sets on each host, and the
    /// file that describes it alone
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    duration_s: f64,
    streams: usize,
    /// Kernel parameters that the run sets, by host.
    sysctls: BTreeMap<&'a str, Sysctls>,
    file: String,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let experiment = experiment::load(&self.file)?;
        let runs: Vec<_> = experiment.runs.iter().map(listed).collect();
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

fn listed(planned: &Planned) -> Listed<'_> {
    let plan = &planned.plan;
    Listed {
        name: planned.name.as_str(),
        duration_s: plan.duration.as_secs_f64(),
        streams: plan.streams.iter().map(|group| group.traffic.streams).sum(),
        sysctls: plan.sysctls_of_hosts(),
        file: planned.run.to_text(),
    }
}
