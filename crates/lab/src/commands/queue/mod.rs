//! `pillion-lab queue`: what a device's queue did with each packet.

mod live;
mod outputs;
mod show;
mod tables;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use pillion_cli::print::{print, print_json};
use pillion_cli::settings::times::parse_s;
use pillion_lab::queue::measure::Summary;

use crate::commands::netns::NetnsArgs;

/// Watch the queue of a device: what became of each packet, when and why
///
/// Every packet that is offered to the queueing discipline of DEV (its children included) is
/// noted: when it arrived and left, whether it was sent or dropped and for what reason, how
/// long the queue was. Watches until Ctrl-C, for --duration, or while CMD runs; then prints
/// losses and queueing delay, of all packets and of each stream, and how drops lie together.
/// The traffic is not changed. docs/queue.md explains the measures.
#[derive(clap::Args)]
#[command(
    override_usage = "pillion-lab queue [OPTIONS] <DEV> [-- <CMD>...]\n       \
                            pillion-lab queue [OPTIONS] --from <FILE>"
)]
pub struct Args {
    /// The device
    #[arg(value_name = "DEV", required_unless_present = "from")]
    device: Option<String>,

    #[command(flatten)]
    netns: NetnsArgs,

    /// End after so many seconds
    #[arg(long, value_name = "S", value_parser = parse_s, conflicts_with = "command")]
    duration: Option<Duration>,

    /// Take the packets from a file that --csv wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "name", "duration", "command"])]
    from: Option<PathBuf>,

    /// Write a line for each packet to FILE; compressed if it ends in .zst
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Print the measures as JSON
    #[arg(long)]
    json: bool,

    /// Watch while this command runs; its exit status is passed on
    #[arg(value_name = "CMD", last = true)]
    command: Vec<OsString>,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        match (&self.from, &self.device) {
            (Some(file), _) => self.show(file),
            (None, Some(device)) => self.watch(device),
            (None, None) => unreachable!("clap demands one of both"),
        }
    }

    fn print(&self, summary: &Summary) -> Result<()> {
        match self.json {
            true => print_json(summary),
            false => print(&tables::text(summary)),
        }
    }
}
