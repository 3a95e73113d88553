//! `pillion`: low latency for TCP thin streams on lossy paths.

mod analyse;
mod attach;
mod beside;
mod bundling;
mod check;
mod command;
mod companions;
mod config;
mod descriptors;
mod disposition;
mod exit;
mod experiment;
mod flows;
mod follow;
mod janitor;
mod lab;
mod man;
mod netns;
mod print;
mod progress;
mod queue;
mod run;
mod sockets;
mod stop;
mod times;
mod toml_file;
mod traffic;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pillion_lab::engine;

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
    Flows(flows::Args),
    Check(check::Args),
    Traffic(traffic::Args),
    Analyse(analyse::Args),
    Queue(queue::Args),
    Sockets(sockets::Args),
    Lab(lab::Args),
    Man(man::Args),
}

fn main() -> ExitCode {
    if engine::is_init() {
        engine::run_as_init();
    }
    let result = match Cli::parse().command {
        Command::Run(args) => args.execute(),
        Command::Attach(args) => args.execute(),
        Command::Flows(args) => args.execute(),
        Command::Check(args) => args.execute(),
        Command::Traffic(args) => args.execute(),
        Command::Analyse(args) => args.execute(),
        Command::Queue(args) => args.execute(),
        Command::Sockets(args) => args.execute(),
        Command::Lab(args) => args.execute(),
        Command::Man(args) => args.execute(),
    };
    result.unwrap_or_else(|error| exit::explain(&error))
}
