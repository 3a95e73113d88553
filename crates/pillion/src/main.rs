//! `pillion`: low latency for TCP thin streams on lossy paths.
// `println!` and `eprintln!` panic if they cannot write; `print` does not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod attach;
mod check;
mod config;
mod flows;
mod follow;
mod handover;
mod observe;
mod process;
mod run;
mod service;
mod stats;
mod status;
mod top;
mod trial;

use std::error::Error;
use std::process::ExitCode;

use anyhow::Result;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use pillion_cli::exit::is;
use pillion_cli::help::{CompletionsArgs, ManArgs};
use pillion_cli::print::say_line;
use pillion_cli::settings::BadInput;
use pillion_cli::{VERSION, exit, help};

use crate::process::{as_the_caller, refuse_if_setuid};
use crate::trial::RecordError;

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
            _ => refuse_if_setuid("all but `pillion run`"),
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
    let command = match as_the_caller(help::parse) {
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
    use std::fs;
    use std::path::Path;

    use clap::CommandFactory;
    use pillion_cli::settings::policy;
    use pillion_tests::documented::{blocks, check_commands, pages};

    use crate::*;

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

    #[test]
    fn commands_and_options_of_the_documentation_exist() {
        let count = check_commands(&Cli::command());
        assert!(count > 40, "{count}");
    }

    #[test]
    fn rules_of_the_documentation_are_sound() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pillion.toml");
        let mut count = 0;
        for (path, page) in pages() {
            let blocks = blocks(&page, "toml");
            for rules in blocks.iter().filter(|it| it.contains("[[rule]]")) {
                fs::write(&file, rules).unwrap();
                if let Err(mistakes) = policy::load(&file, false) {
                    panic!("{}: {mistakes}", path.display());
                }
                count += 1;
            }
        }
        assert!(count >= 4, "{count}");
    }

    #[test]
    fn every_command_is_in_the_readme() {
        let pages = pages();
        let (_, readme) = pages
            .iter()
            .find(|(path, _)| path.ends_with("README.md"))
            .unwrap();
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let is_shown = readme.contains(&format!("pillion {name}"));
            assert!(
                is_shown || ["help", "man", "completions", "config"].contains(&name),
                "{name}"
            );
        }
    }

    #[test]
    fn every_file_of_tests_that_the_documentation_names_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folders = ["", "tests/netns", "tests/netns/lifecycle"].map(|it| root.join(it));
        let mut count = 0;
        for (path, page) in pages() {
            let named = page.split('`').skip(1).step_by(2);
            for name in named.filter(|it| it.ends_with(".rs") && !it.contains(char::is_whitespace))
            {
                let is_there = folders.iter().any(|folder| folder.join(name).exists());
                assert!(is_there, "{}: {name}", path.display());
                count += 1;
            }
        }
        assert!(count > 20, "{count}");
    }
}
