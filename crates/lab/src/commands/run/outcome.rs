use std::path::{Path, PathBuf};

use anyhow::Result;
use pillion_cli::exit::one_line;
use pillion_cli::print::{print_json, print_line, say_line};
use pillion_lab::settings::experiment::Planned;
use pillion_lab::store::StoredRun;
use serde::Serialize;

/// What became of a run.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The run's name.
    run: String,
    /// The run's folder, if it is whole.
    folder: Option<PathBuf>,
    /// Why the run is not whole, if it is not.
    error: Option<String>,
    /// What casts doubt on the run.
    doubts: Vec<String>,
}

impl Outcome {
    pub fn new(planned: &Planned, result: Result<PathBuf>) -> Result<Self> {
        let run = planned.name.to_string();
        Ok(match result {
            Ok(folder) => {
                let summary = StoredRun::read(&folder)?.map(|run| run.summary());
                Self {
                    run,
                    folder: Some(folder),
                    error: None,
                    doubts: summary.transpose()?.map_or_else(Vec::new, |it| it.doubts),
                }
            }
            Err(error) => Self {
                run,
                folder: None,
                error: Some(one_line(&error)),
                doubts: Vec::new(),
            },
        })
    }

    pub fn is_whole(&self) -> bool {
        self.error.is_none()
    }
}

/// Prints what became of the runs: what failed, and where the rest is.
pub fn print(outcomes: &[Outcome], folder: &Path, json: bool) -> Result<()> {
    if json {
        return print_json(&outcomes);
    }
    for outcome in outcomes {
        let colon = if outcome.run.is_empty() { "" } else { ": " };
        if let Some(error) = &outcome.error {
            say_line!("pillion-lab: {}{colon}{error}", outcome.run);
        }
        for doubt in &outcome.doubts {
            say_line!("pillion-lab: {}{colon}doubtful: {doubt}", outcome.run);
        }
    }
    let whole = outcomes.iter().filter(|outcome| outcome.is_whole()).count();
    print_line!("{whole} of {} runs: {}", outcomes.len(), folder.display())?;
    Ok(())
}
