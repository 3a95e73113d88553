use std::process::ExitCode;

use anyhow::Result;
use pillion_bpf::{Standing, check};
use pillion_cli::print::{print_json, print_line};

/// Say what this host supports, a line each, with the remedy for what it lacks
#[derive(clap::Args)]
pub struct Args {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let findings = check();
        if self.json {
            print_json(&findings)?;
        } else {
            for finding in &findings {
                let mark = match finding.standing {
                    Standing::Ok => "ok",
                    Standing::Warning => "warning",
                    Standing::Missing => "MISSING",
                };
                let remedy = finding
                    .remedy
                    .as_ref()
                    .map_or(String::new(), |remedy| format!(" -> {remedy}"));
                print_line!("{mark:<8} {:<15} {}{remedy}", finding.name, finding.found)?;
            }
        }
        let complete = findings
            .iter()
            .all(|finding| finding.standing != Standing::Missing);
        Ok(if complete {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
