//! `pillion`: low latency for TCP thin streams on lossy paths.
// They panic where nothing can be written; `print` does not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod account;
mod analyse;
mod attach;
mod beside;
mod bundling;
mod check;
mod chosen;
mod command;
mod companions;
mod descriptors;
mod disposition;
#[cfg(test)]
mod documented;
mod exit;
mod flows;
mod follow;
mod help;
mod janitor;
mod lab;
mod lent;
mod man;
mod netns;
mod observe;
mod output_file;
mod print;
mod privilege;
mod progress;
mod queue;
mod records_output;
mod rules;
mod run;
mod service;
mod signals;
mod sockets;
mod stats;
mod status;
mod stop;
mod succession;
mod top;
mod traffic;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use pillion_lab::engine;
use pillion_settings::BadInput;

/// pillion's version, and the commit that it is built from.
const VERSION: &str = env!("PILLION_VERSION");

/// Low latency for TCP thin streams on lossy paths: each small new segment carries
/// the unacknowledged bytes before it (Redundant Data Bundling), so that a lost one
/// needs no retransmission. The receiver needs nothing, the application no change.
#[derive(Parser)]
#[command(name = "pillion", version = VERSION, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Attach(attach::Args),
    Advise(observe::AdviseArgs),
    Trial(observe::TrialArgs),
    Flows(flows::Args),
    Top(top::Args),
    Status(status::Args),
    Check(check::Args),
    Traffic(traffic::Args),
    Analyse(analyse::Args),
    Queue(queue::Args),
    Sockets(sockets::Args),
    Lab(lab::Args),
    Man(man::Args),
}

impl Command {
    fn refuse(&self) -> Result<(), BadInput> {
        match self {
            Self::Run(_) => Ok(()),
            _ => lent::refuse("all but `pillion run`"),
        }
    }

    fn execute(self) -> Result<ExitCode> {
        match self {
            Self::Run(args) => args.execute(),
            Self::Attach(args) => args.execute(),
            Self::Advise(args) => args.execute(),
            Self::Trial(args) => args.execute(),
            Self::Flows(args) => args.execute(),
            Self::Top(args) => args.execute(),
            Self::Status(args) => args.execute(),
            Self::Check(args) => args.execute(),
            Self::Traffic(args) => args.execute(),
            Self::Analyse(args) => args.execute(),
            Self::Queue(args) => args.execute(),
            Self::Sockets(args) => args.execute(),
            Self::Lab(args) => args.execute(),
            Self::Man(args) => args.execute(),
        }
    }
}

fn main() -> ExitCode {
    if engine::is_init() {
        engine::run_as_init();
    }
    let command = match lent::as_the_caller(help::parse) {
        Ok(Cli { command }) => command,
        Err(refusal) => return help::explain(&refusal),
    };
    let result = match command.refuse() {
        Ok(()) => command.execute(),
        Err(refusal) => Err(refusal.into()),
    };
    result.unwrap_or_else(|error| exit::explain(&error))
}
