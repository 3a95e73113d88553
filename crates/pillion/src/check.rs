use std::process::ExitCode;

use anyhow::Result;
use pillion_bpf::{Severity, check};
use pillion_cli::print::{print_json, print_line};

/// Check this host: one line for each requirement, with the remedy if it is missing
#[derive(clap::Args)]
pub struct Args {
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let results = check();
        if self.json {
            print_json(&results)?;
        } else {
            for result in &results {
                let mark = match result.severity {
                    Severity::Ok => "ok",
                    Severity::Warning => "warning",
                    Severity::Missing => "MISSING",
                };
                let remedy = result
                    .remedy
                    .as_ref()
                    .map_or(String::new(), |remedy| format!(" -> {remedy}"));
                print_line!("{mark:<8} {:<15} {}{remedy}", result.name, result.value)?;
            }
        }
        let complete = results
            .iter()
            .all(|result| result.severity != Severity::Missing);
        Ok(if complete {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
