use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Id;
use pillion_cli::print::{print_line, say};
use pillion_cli::settings::times::parse_s;
use pillion_cli::settings::{BadInput, arguments};
use pillion_lab::settings::parse_host_port;
use pillion_lab::settings::traffic::{self, Group, Mix, on_the_command_line};
use pillion_lab::traffic::Traffic;
use pillion_stats::report::number;

use super::sending;

/// Send streams to `pillion-lab traffic receive`
///
/// All connections are made first; then each stream sends as its kind says. docs/traffic.md
/// describes the kinds.
#[derive(clap::Args)]
pub struct Args {
    /// The receiver
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_parser = parse_host_port,
        required_unless_present = "check_config"
    )]
    to: Option<SocketAddr>,

    /// Groups of streams that FILE describes, side by side
    #[arg(long, value_name = "FILE", conflicts_with_all = in_the_file())]
    config: Option<PathBuf>,

    /// Only say what is wrong with the file, a line for each mistake
    #[arg(long, requires = "config")]
    check_config: bool,

    #[command(flatten)]
    group: Group,

    /// Seconds of sending [default: 10, or until all messages are sent]
    #[arg(long, value_name = "S", value_parser = parse_s)]
    duration: Option<Duration>,

    /// Seed of times, sizes and content
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    sending: sending::SendingArgs,
}

/// What the file says, if there is one.
fn in_the_file() -> impl Iterator<Item = Id> {
    let all = ["duration", "seed"].map(Id::from);
    all.into_iter().chain(arguments::<Group>())
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let mix = match &self.config {
            None => self.mix()?,
            Some(file) => match traffic::load(file) {
                Ok(mix) => mix,
                Err(mistakes) => {
                    say(&mistakes.to_string());
                    return Ok(ExitCode::from(2));
                }
            },
        };
        let streams: usize = mix.groups.iter().map(|group| group.streams).sum();
        let Some(to) = self.to.filter(|_| !self.check_config) else {
            print_line!(
                "no mistake: would send {} in {}",
                number::counted(streams as u64, "stream"),
                number::counted(mix.groups.len() as u64, "group"),
            )?;
            return Ok(ExitCode::SUCCESS);
        };
        self.sending.execute(Traffic {
            duration: mix.duration,
            seed: mix.seed,
            ..Traffic::of(to, mix.groups)
        })
    }

    fn mix(&self) -> Result<Mix, BadInput> {
        let group = self.group.group().map_err(on_the_command_line)?;
        let default = group.messages.is_none().then_some(sending::DURATION);
        Ok(Mix {
            duration: self.duration.or(default),
            seed: self.seed,
            groups: vec![group],
        })
    }
}
