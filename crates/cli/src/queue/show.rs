use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use pillion_queue::{FileError, read_events};
use pillion_settings::BadInput;

use super::Args;
use super::outputs::Outputs;
use crate::exit::INCOMPLETE;

impl Args {
    /// Shows the measures of a file of events. What comes before damage is measured all the same.
    pub fn show(&self, file: &Path) -> Result<ExitCode> {
        let name = file.display().to_string();
        let bad = |error: FileError| match error {
            FileError::Io(error) => anyhow!(error).context(format!("read {name}")),
            error => BadInput(format!("{name}: {error}")).into(),
        };
        let from = File::open(file).map_err(|error| BadInput(format!("{name}: {error}")))?;
        let (description, events) = read_events(from).map_err(bad)?;
        let mut outputs = Outputs::open(self, description)?;
        let mut code = ExitCode::SUCCESS;
        for event in events {
            match event {
                Ok(event) => outputs.take(&event).context("write the CSV")?,
                Err(FileError::Io(error)) => return Err(bad(FileError::Io(error))),
                Err(damage) => {
                    eprintln!("pillion: {name}: {damage}");
                    code = ExitCode::from(INCOMPLETE);
                }
            }
        }
        self.print(&outputs.finish()?)?;
        Ok(code)
    }
}
