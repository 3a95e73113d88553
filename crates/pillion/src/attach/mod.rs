mod asked;
mod at_work;
mod begin;
mod dry_run;
mod follower;
mod place;
mod reload;
mod waiting;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Id;
use nix::sys::signal::Signal;
use nix::sys::signalfd::{SignalFd, siginfo};
use pillion_cli::disposition::{is_ignored, outlive_file_limit};
use pillion_cli::print::say;
use pillion_cli::settings::policy::Otherwise;
use pillion_cli::settings::{Bundling, Telling, arguments};

use crate::bundling::BundlingArgs;
use crate::chosen::{ChoiceArgs, NamespaceArgs};
use crate::descriptors::Descriptors;
use crate::service::Announced;
use crate::signals;
use crate::stats::Stats;
use crate::succession::{leave_predecessor, remember_program, take_over};

/// Bundle chosen connections of the whole host, until a signal ends it
///
/// Connections of this network namespace (or others, with --netns) are chosen by port (local
/// or remote) and by peer, or by the rules of a file; those that exist already are taken in.
/// Others are bundled once their application asks for it with a socket option
/// (docs/socket-option.md), so that without any choice these alone are. Nothing stays behind when
/// pillion ends, however it ends, but the companions that connections got.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: ChoiceArgs,

    /// All connections
    #[arg(long, conflicts_with_all = arguments::<ChoiceArgs>())]
    all: bool,

    /// What becomes of connections that are not chosen
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    otherwise: Otherwise,

    /// Connections that the rules in FILE choose, bundled as they say; SIGHUP has it read
    /// again. `-` is standard input, which is read once
    #[arg(long, value_name = "FILE", conflicts_with_all = in_the_file())]
    config: Option<PathBuf>,

    #[command(flatten)]
    namespaces: NamespaceArgs,

    /// Wait for devices, network namespaces and cgroups that are not there yet, as at boot, and say so;
    /// --netns takes no PID then
    #[arg(long)]
    wait: bool,

    /// Only say what is wrong with the file, a line for each mistake
    #[arg(long, requires = "config")]
    check_config: bool,

    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    telling: Telling,

    #[command(flatten)]
    bundling: BundlingArgs,
}

/// What the file says, if there is one.
fn in_the_file() -> impl Iterator<Item = Id> {
    let choice = arguments::<ChoiceArgs>().into_iter();
    let choice = choice.chain(["all", "otherwise"].map(Id::from));
    choice.chain(arguments::<Bundling>())
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        leave_predecessor()?;
        remember_program()?;
        // The file may name hosts, whose addresses take their time.
        signals::keep(self.requests())?;
        let mut asked = match self.asked()? {
            Ok(asked) => asked,
            Err(mistakes) => {
                say(&mistakes.to_string());
                return Ok(ExitCode::from(2));
            }
        };
        if self.check_config {
            self.check_config(asked)?;
            return Ok(ExitCode::SUCCESS);
        }
        Descriptors::raise();
        outlive_file_limit().context("ignore SIGXFSZ")?;
        let stats = Stats::to(asked.telling.stats.clone())?;
        if self.dry_run {
            self.dry_run(&asked)?;
            return Ok(ExitCode::SUCCESS);
        }
        let signals = self.signals()?;
        let announced = Announced::begin(self.connections(&asked.policy));
        if let Some(selection) = self.place(&mut asked, &announced, &signals)? {
            let mut at_work = self.begin(asked, selection, stats, announced)?;
            take_over()?;
            let why = at_work.go_on(&signals)?;
            at_work.end(why, &signals)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// What it hears while it is at work, or waits to be.
    fn signals(&self) -> Result<SignalFd> {
        let mut signals = self.requests();
        signals.extend([Signal::SIGINT, Signal::SIGTERM]);
        // As `nohup` has it, the end of a terminal is nothing to pillion.
        if !is_ignored(Signal::SIGHUP) {
            signals.push(Signal::SIGHUP);
        }
        signals::receive(signals)
    }

    /// The signals that ask something of it, and do not end it.
    fn requests(&self) -> Vec<Signal> {
        let read_again = self.config.as_ref().map(|_| Signal::SIGHUP);
        let requests = [Signal::SIGUSR1, Signal::SIGUSR2];
        requests.into_iter().chain(read_again).collect()
    }
}

/// Has the end of a terminal sent it? Others mean that something be read again.
fn is_terminals(info: &siginfo) -> bool {
    info.ssi_code == libc::SI_KERNEL || fs::File::open("/dev/tty").is_ok()
}
