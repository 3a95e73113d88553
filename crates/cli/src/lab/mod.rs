mod board;
mod boot;
mod compare;
mod demo;
mod grid;
mod list;
mod machine;
mod plan;
mod remove;
mod reproduce;
mod run;
mod run_one;
mod show;
mod store;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Testbeds on this host, and experiments on them
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Boot(boot::Args),
    Plan(plan::Args),
    Run(run::Args),
    Grid(grid::Args),
    Verify(verify::Args),
    List(list::Args),
    Show(show::Args),
    Compare(compare::Args),
    Reproduce(reproduce::Args),
    Remove(remove::Args),
    #[command(hide = true)]
    RunOne(run_one::Args),
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        match self.command {
            Command::Demo(args) => args.execute(),
            Command::Boot(args) => args.execute(),
            Command::Plan(args) => args.execute(),
            Command::Run(args) => args.execute(),
            Command::Grid(args) => args.execute(),
            Command::Verify(args) => args.execute(),
            Command::List(args) => args.execute(),
            Command::Show(args) => args.execute(),
            Command::Compare(args) => args.execute(),
            Command::Reproduce(args) => args.execute(),
            Command::Remove(args) => args.execute(),
            Command::RunOne(args) => args.execute(),
        }
    }
}
