mod receive;
mod send;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Generate thin streams, or receive them, verify every byte and measure their latency
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Send(send::Args),
    Receive(receive::Args),
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        match self.command {
            Command::Send(args) => args.execute(),
            Command::Receive(args) => args.execute(),
        }
    }
}
