use std::process::ExitCode;

use anyhow::Result;
use pillion_lab::store::Found;

use super::store::StoreArgs;
use pillion_cli::print::print_line;

/// Remove experiments that were run, or single runs, from the disk
///
/// All names are looked up before the first is removed.
#[derive(clap::Args)]
pub struct Args {
    /// What `pillion-lab list` names, or a run below it; an experiment's name alone stands for
    /// the last time that it was run
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    #[command(flatten)]
    store: StoreArgs,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let store = self.store.open();
        let found = self.names.iter().map(|name| store.find(name));
        let found: Vec<Found> = found.collect::<Result<_, _>>()?;
        for found in found {
            store.remove(&found)?;
            print_line!("removed {}", found.path().display())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
