use std::path::{Path, PathBuf};

use anyhow::Result;
use pillion_settings::experiment::Planned;
use serde::Serialize;

use crate::exit::one_line;
use crate::print::{print_json, print_line};

/// What became of a run.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The run's name.
    run: String,
    /// The run's folder, if it is whole.
    folder: Option<PathBuf>,
    /// Why the run is not whole, if it is not.
    error: Option<String>,
}

impl Outcome {
    pub fn new(planned: &Planned, result: Result<PathBuf>) -> Self {
        let run = planned.name.clone();
        match result {
            Ok(folder) => Self {
                run,
                folder: Some(folder),
                error: None,
            },
            Err(error) => Self {
                run,
                folder: None,
                error: Some(one_line(&error)),
            },
        }
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
        if let Some(error) = &outcome.error {
            let colon = if outcome.run.is_empty() { "" } else { ": " };
            eprintln!("pillion: {}{colon}{error}", outcome.run);
        }
    }
    let whole = outcomes.iter().filter(|outcome| outcome.is_whole()).count();
    print_line!("{whole} of {} runs: {}", outcomes.len(), folder.display())?;
    Ok(())
}
