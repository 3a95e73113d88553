//! `pillion`: low latency for TCP thin streams on lossy paths.
// `println!` and `eprintln!` panic if they cannot write; `print` does not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod attach;
mod check;
mod config;
mod event_loop;
mod flows;
mod handover;
mod observe;
mod process;
mod rules;
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
use pillion_cli::exit::cause_matches;
use pillion_cli::help::{CompletionsArgs, ManArgs};
use pillion_cli::settings::BadInput;
use pillion_cli::{VERSION, exit, help, log as logger};

use crate::process::{refuse_file_capabilities, refuse_if_setuid, with_caller_privileges};
use crate::trial::StateError;

/// `lab` and the subcommands of `pillion-lab`, for a hint to users who type them here.
const LAB_COMMANDS: [&str; 16] = [
    "analyse",
    "boot",
    "compare",
    "demo",
    "grid",
    "lab",
    "list",
    "path",
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
    fn check_privileges(&self) -> Result<(), BadInput> {
        match self {
            Self::Run(_) => Ok(()),
            _ => refuse_if_setuid("commands other than `pillion run`"),
        }?;
        match self {
            Self::Completions(_) | Self::Man(_) | Self::Config(_) => Ok(()),
            _ => refuse_file_capabilities(),
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
    logger::start("pillion", logger::LogLevel::default());
    let command = match with_caller_privileges(help::parse) {
        Ok(Cli { command }) => command,
        Err(refusal) => return print_parse_error(&refusal),
    };
    let result = match command.check_privileges() {
        Ok(()) => command.execute(),
        Err(refusal) => Err(refusal.into()),
    };
    result.unwrap_or_else(|error| exit::report_error(&error, is_bad_input))
}

fn is_bad_input(cause: &(dyn Error + 'static)) -> bool {
    cause_matches(cause, pillion_bpf::Error::is_bad_input)
        || cause_matches(cause, StateError::is_bad_input)
}

/// Prints help, or the mistake in the command line. For subcommands of `pillion-lab` it prints a hint; it
/// does not start them, because a setuid program must not search `PATH`.
fn print_parse_error(refusal: &clap::Error) -> ExitCode {
    let word = match refusal.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if refusal.kind() == ErrorKind::InvalidSubcommand => word,
        _ => return help::print_parse_error(refusal),
    };
    match word.as_str() {
        "lab" => log::error!("`pillion lab` is `pillion-lab`"),
        word if LAB_COMMANDS.contains(&word) => {
            log::error!("`pillion {word}` is `pillion-lab {word}`");
        }
        _ => return help::print_parse_error(refusal),
    }
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use clap::CommandFactory;
    use pillion_cli::settings::policy;
    use pillion_tests::doc_commands::{blocks, check_commands, pages};

    use crate::*;

    #[test]
    fn subcommands_differ_from_those_of_the_lab() {
        for command in Cli::command().get_subcommands() {
            assert!(!LAB_COMMANDS.contains(&command.get_name()));
        }
    }

    #[test]
    fn experimental_options_are_last_and_not_in_short_help() {
        for name in ["run", "attach"] {
            let mut cli = Cli::command();
            let command = cli.find_subcommand_mut(name).unwrap();
            let short = command.render_help().to_string();
            let long = command.render_long_help().to_string();
            let (_, last) = long.split_once("\nExperimental:\n").unwrap();
            for option in ["thin-rtt", "loss-rule", "target", "published", "unsafe"] {
                assert!(!short.contains(&format!("--{option}")), "{name}: {short}");
                assert!(last.contains(&format!("--{option}")), "{name}: {last}");
            }
            assert!(!last.contains("--thin "), "{name}: {last}");
        }
    }

    #[test]
    fn documented_commands_and_options_exist() {
        let count = check_commands(&Cli::command());
        assert!(count > 40, "{count}");
    }

    #[test]
    fn documented_rules_are_valid() {
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
    fn readme_shows_every_command() {
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
    fn documented_test_files_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folders = ["", "tests/netns", "tests/netns/lifecycle"].map(|it| root.join(it));
        let mut count = 0;
        for (path, page) in pages() {
            let named = page.split('`').skip(1).step_by(2);
            for name in named.filter(|it| it.ends_with(".rs") && !it.contains(char::is_whitespace))
            {
                let exists = folders.iter().any(|folder| folder.join(name).exists());
                assert!(exists, "{}: {name}", path.display());
                count += 1;
            }
        }
        assert!(count > 20, "{count}");
    }
}
