mod receive;
mod replay;
mod send;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use pillion_cli::print::{print, print_json};
use pillion_lab::traffic::{Profile, Quantiles, Time, profiles};
use pillion_stats::report::number;

/// Send traffic of thin and other streams, or receive it, verify it and measure its latency
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Send(Box<send::Args>),
    Receive(receive::Args),
    Profiles(ProfilesArgs),
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

/// Formats the quantiles of a latency in milliseconds, in one line.
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

/// List the applications for `send --profile NAME`
///
/// Sizes are bytes of payload and times are milliseconds between packets, as in the papers.
#[derive(clap::Args)]
pub struct ProfilesArgs {
    /// Print the profiles as JSON
    #[arg(long)]
    json: bool,
}

impl ProfilesArgs {
    pub fn execute(self) -> Result<ExitCode> {
        let profiles = profiles();
        match self.json {
            true => print_json(&profiles)?,
            false => print(&table(&profiles))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn table(profiles: &[Profile]) -> String {
    let mut table = format!(
        "{:<25} {:>5} {:>5} {:>5}  {:>5} {:>5} {:>5} {:>6} {:>5} {:>5}  source\n",
        "name", "min B", "avg", "max", "minms", "avg", "med", "max", "1%", "99%"
    );
    for profile in profiles {
        let (size, iat) = (profile.size, profile.iat);
        table += &format!(
            "{:<25} {:>5} {:>5} {:>5}  {:>5} {:>5} {:>5} {:>6} {:>5} {:>5}  {}\n",
            profile.name,
            size.min,
            size.avg,
            size.max,
            text(iat.min),
            iat.avg,
            text(iat.med),
            iat.max,
            text(iat.p1),
            text(iat.p99),
            profile.sources,
        );
    }
    table
}

fn text(time: Time) -> String {
    match time {
        Time::Ms(ms) => ms.to_string(),
        Time::Below(_) => "<1".to_owned(),
    }
}
