//! Runs pillion and its tests on kernels as distributions ship them.
//!
//! ```text
//! host   catalogue --> stock (archive, cache) --> image --> machine --> outcome --> gate, table
//!                                                            |  ^
//! guest                                          /init: guest   reports
//! ```
//!
//! The same program is the guest's first process.

mod architecture;
mod catalogue;
mod gate;
mod guest;
mod image;
mod machine;
mod outcome;
mod report;
mod run;
mod stock;
mod table;

use std::fmt;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use pillion_lab::engine::is_init;

use catalogue::Catalogue;
use gate::AcceptedCosts;
use outcome::Outcome;

/// Run pillion and its tests on distributions' kernels, in a machine emulator
#[derive(Parser)]
#[command(name = "pillion-kernels", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the work on kernels, the oldest first
    Run(run::Run),
    /// Fetch kernels without testing them
    Fetch {
        /// Names from kernels.toml [default: all]
        kernels: Vec<String>,
    },
    /// Accept the verification costs of the last runs
    Accept,
    /// Write the last runs' table into docs/reference/kernels.md
    Table,
}

/// Invalid input, as opposed to a failed operation.
#[derive(Debug)]
struct BadInput(String);

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

fn main() -> ExitCode {
    if is_init() {
        guest::run();
    }
    let done = match Cli::parse().command {
        Command::Run(run) => run::run(&run),
        Command::Fetch { kernels } => fetch(&kernels).map(|()| true),
        Command::Accept => accept().map(|()| true),
        Command::Table => table::write().map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("kernels: {error:#}");
            let is_bad_input = error.is::<BadInput>();
            if is_bad_input {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn fetch(names: &[String]) -> Result<()> {
    let catalogue = Catalogue::load()?;
    for entry in catalogue.choose(names)? {
        let stock = stock::find(entry, &|line| println!("{line}"))?;
        println!("{}: {} ({})", entry.name, stock.release, stock.version);
    }
    Ok(())
}

fn accept() -> Result<()> {
    let mut accepted = AcceptedCosts::read()?;
    for kernel in &Catalogue::load()?.kernels {
        if let Some(outcome) = Outcome::stored(&kernel.name, false)?
            && !outcome.costs.is_empty()
        {
            accepted.accept(&kernel.name, &outcome.costs);
            println!("{}: {} programs", kernel.name, outcome.costs.len());
        }
    }
    accepted.write()
}
