use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::print::{print_json, print_line};
use pillion_lab::store::{Made, State};
use pillion_stats::report::{Column, Table};
use serde::Serialize;

use super::store::StoreArgs;

/// List the experiments that were run
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,

    /// Print JSON, with every run
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    path: PathBuf,
    runs: Vec<ListedRun<'a>>,
}

#[derive(Serialize)]
struct ListedRun<'a> {
    name: &'a str,
    path: PathBuf,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let all = self.store.open().list()?;
        if self.json {
            let all: Vec<_> = all.iter().map(listed).collect();
            print_json(&all)?;
        } else if all.is_empty() {
            print_line!("no runs in {}", self.store.folder().display())?;
        } else {
            let columns = [
                Column::left("experiment"),
                Column::right("runs"),
                Column::right("whole"),
            ];
            let mut table = Table::new("Experiments", columns);
            for made in &all {
                let whole = made.runs.iter().filter(|run| run.state == State::Whole);
                table.row([
                    made.name.clone(),
                    made.runs.len().to_string(),
                    whole.count().to_string(),
                ]);
            }
            print_line!("{}", table.to_text())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn listed(made: &Made) -> Listed<'_> {
    let runs = made.runs.iter().map(|run| ListedRun {
        name: &run.name,
        path: run.path.clone(),
        state: word(&run.state),
        why: match &run.state {
            State::Broken(why) => Some(why),
            State::Whole | State::Part => None,
        },
    });
    Listed {
        name: &made.name,
        path: made.path.clone(),
        runs: runs.collect(),
    }
}

/// A run's state in one word.
pub fn word(state: &State) -> &'static str {
    match state {
        State::Whole => "whole",
        State::Broken(_) => "broken",
        State::Part => "unfinished",
    }
}
