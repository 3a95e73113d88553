use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::print::print_line;
use pillion_lab::store::Found;

use super::store::StoreArgs;

/// Remove experiments that were run, or single runs, from the disk
///
/// All names are looked up before the first is removed.
#[derive(clap::Args)]
pub struct Args {
    /// An experiment as `pillion-lab list` prints it, or one of its runs; the name without a time is
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
