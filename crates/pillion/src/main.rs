//! `pillion`: low latency for TCP thin streams on lossy paths.
// `println!` and `eprintln!` panic if they cannot write; `print` does not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod account;
mod attach;
mod bundling;
mod check;
mod chosen;
mod companions;
mod config;
mod descriptors;
#[cfg(test)]
mod documented;
mod flows;
mod follow;
mod janitor;
mod lent;
mod observe;
mod privilege;
mod rules;
mod run;
mod service;
mod signals;
mod stats;
mod status;
mod succession;
mod top;
mod trial;

use std::error::Error;
use std::process::ExitCode;

use crate::trial::RecordError;
use anyhow::Result;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use pillion_cli::exit::is;
use pillion_cli::man::{CompletionsArgs, ManArgs};
use pillion_cli::print::say_line;
use pillion_cli::settings::BadInput;
use pillion_cli::{VERSION, exit, help};

/// `lab`, and the subcommands that only `pillion-lab` has: people may type them here.
const OF_THE_LAB: [&str; 15] = [
    "analyse",
    "boot",
    "compare",
    "demo",
    "grid",
    "lab",
    "list",
    "plan",
    "queue",
    "remove",
    "reproduce",
    "show",
    "sockets",
    "traffic",
    "verify",
];

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
    Completions(CompletionsArgs),
    Man(ManArgs),
    Config(config::Args),
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
            Self::Completions(args) => args.execute::<Cli>(),
            Self::Man(args) => args.execute::<Cli>(&[("pillion.toml.5", config::manual_page())]),
            Self::Config(args) => args.execute(),
        }
    }
}

fn main() -> ExitCode {
    let command = match lent::as_the_caller(help::parse) {
        Ok(Cli { command }) => command,
        Err(refusal) => return explain(&refusal),
    };
    let result = match command.refuse() {
        Ok(()) => command.execute(),
        Err(refusal) => Err(refusal.into()),
    };
    result.unwrap_or_else(|error| exit::explain("pillion", &error, is_bad_input))
}

fn is_bad_input(cause: &(dyn Error + 'static)) -> bool {
    is(cause, pillion_bpf::Error::is_bad_input) || is(cause, RecordError::is_bad_input)
}

/// Prints help, or what is wrong with the command line. Subcommands of `pillion-lab` are named and not
/// started: a setuid program must not search `PATH`.
fn explain(refusal: &clap::Error) -> ExitCode {
    let word = match refusal.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if refusal.kind() == ErrorKind::InvalidSubcommand => word,
        _ => return help::explain("pillion", refusal),
    };
    match word.as_str() {
        "lab" => say_line!("pillion: `pillion lab` is `pillion-lab`"),
        word if OF_THE_LAB.contains(&word) => {
            say_line!("pillion: `pillion {word}` is `pillion-lab {word}`");
        }
        _ => return help::explain("pillion", refusal),
    }
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn no_subcommand_is_one_of_the_lab() {
        for command in Cli::command().get_subcommands() {
            assert!(!OF_THE_LAB.contains(&command.get_name()));
        }
    }

    #[test]
    fn options_of_experiments_stand_last_and_not_in_short_help() {
        for name in ["run", "attach"] {
            let mut cli = Cli::command();
            let command = cli.find_subcommand_mut(name).unwrap();
            let short = command.render_help().to_string();
            let long = command.render_long_help().to_string();
            let (_, last) = long.split_once("\nExperimental:\n").unwrap();
            for option in ["rtt", "loss-rule", "target", "published", "unsafe"] {
                assert!(!short.contains(&format!("--{option}")), "{name}: {short}");
                assert!(last.contains(&format!("--{option}")), "{name}: {last}");
            }
            assert!(!last.contains("--thin"), "{name}: {last}");
        }
    }
}
