//! `pillion-lab`: experiments, traffic, analysis of traces.
// `println!` and `eprintln!` panic if they cannot write; `print` returns an error.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod commands;

use std::error::Error;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use pillion_cli::exit::cause_matches;
use pillion_cli::help::{CompletionsArgs, ManArgs};
use pillion_cli::log::{self, LogLevel};
use pillion_cli::{VERSION, exit, help};
use pillion_lab::PROGRAM;
use pillion_lab::engine::{self, EngineError};
use pillion_lab::path::PathError;
use pillion_lab::traffic::{ReceiveError, SendError};
use pillion_trace::input::InputError;

use commands::*;

/// Experiments with TCP thin streams, and their tools: traffic generator, queue probe, socket
/// samples, and the analysis of packet traces.
#[derive(Parser)]
#[command(name = PROGRAM, version = VERSION, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Run(run::Args),
    Plan(plan::PlanArgs),
    Compare(compare::Args),
    Show(store::ShowArgs),
    List(store::ListArgs),
    Verify(run::VerifyArgs),
    Reproduce(reproduce::Args),
    Grid(plan::GridArgs),
    Remove(store::RemoveArgs),
    Boot(boot::Args),
    Analyse(analyse::Args),
    Traffic(traffic::Args),
    Queue(queue::Args),
    Sockets(sockets::Args),
    Path(path::Args),
    Completions(CompletionsArgs),
    Man(ManArgs),
    #[command(hide = true)]
    RunOne(run::RunOneArgs),
}

impl Command {
    fn execute(self) -> Result<ExitCode> {
        match self {
            Self::Demo(args) => args.execute(),
            Self::Run(args) => args.execute(),
            Self::Plan(args) => args.execute(),
            Self::Compare(args) => args.execute(),
            Self::Show(args) => args.execute(),
            Self::List(args) => args.execute(),
            Self::Verify(args) => args.execute(),
            Self::Reproduce(args) => args.execute(),
            Self::Grid(args) => args.execute(),
            Self::Remove(args) => args.execute(),
            Self::Boot(args) => args.execute(),
            Self::Analyse(args) => args.execute(),
            Self::Traffic(args) => args.execute(),
            Self::Queue(args) => args.execute(),
            Self::Sockets(args) => args.execute(),
            Self::Path(args) => args.execute(),
            Self::Completions(args) => args.execute::<Cli>(),
            Self::Man(args) => args.execute::<Cli>(&[]),
            Self::RunOne(args) => args.execute(),
        }
    }
}

fn main() -> ExitCode {
    if engine::is_init() {
        engine::run_as_init();
    }
    log::start(PROGRAM, LogLevel::default());
    let command = match help::parse() {
        Ok(Cli { command }) => command,
        Err(refusal) => return help::print_parse_error(&refusal),
    };
    let result = command.execute();
    result.unwrap_or_else(|error| exit::report_error(&error, is_bad_input))
}

fn is_bad_input(cause: &(dyn Error + 'static)) -> bool {
    cause.is::<InputError>()
        || matches!(cause.downcast_ref(), Some(PathError::OutOfRange { .. }))
        || cause_matches(cause, pillion_bpf::Error::is_bad_input)
        || cause_matches(cause, pillion_lab::Error::is_bad_input)
        || cause_matches(cause, EngineError::is_bad_input)
        || cause_matches(cause, pillion_lab::queue::Error::is_bad_input)
        || cause_matches(cause, SendError::is_bad_input)
        || cause_matches(cause, ReceiveError::is_bad_input)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use pillion_tests::doc_commands::check_commands;

    use super::*;

    #[test]
    fn documented_commands_and_options_exist() {
        let count = check_commands(&Cli::command());
        assert!(count > 40, "{count}");
    }
}
