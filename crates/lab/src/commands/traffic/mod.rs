mod profiles;
mod receive;
mod replay;
mod send;
mod sending;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use pillion_lab::traffic::Quantiles;
use pillion_stats::report::number;

/// Generate thin and other streams, or receive them, verify every byte and measure their latency
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Send(Box<send::Args>),
    Receive(receive::Args),
    Profiles(profiles::Args),
    Replay(replay::Args),
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        match self.command {
            Command::Send(args) => args.execute(),
            Command::Receive(args) => args.execute(),
            Command::Profiles(args) => args.execute(),
            Command::Replay(args) => args.execute(),
        }
    }
}

/// The quantiles of a latency in milliseconds, on one line.
fn latency(latency: &Quantiles) -> String {
    let ms = |us: f64| number::millis(us / 1e3);
    format!(
        "p50 {}, p90 {}, p97 {}, p99 {}, p99.9 {}, max {}",
        ms(latency.p50),
        ms(latency.p90),
        ms(latency.p97),
        ms(latency.p99),
        ms(latency.p99_9),
        ms(latency.max),
    )
}
