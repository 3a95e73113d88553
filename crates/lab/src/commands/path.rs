//! `pillion-lab path`: pillion's own path between two network namespaces.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use pillion_bpf::NamespaceName;
use pillion_bpf::host::Ticks;
use pillion_cli::exit::INCOMPLETE;
use pillion_cli::print::print_json;
use pillion_cli::settings::times::{parse_duration, parse_percent};
use pillion_cli::stop;
use pillion_lab::path::{Direction, Loss, Path, PathConfig, Tap};

/// Name of both devices.
const DEVICE: &str = "path";

/// Connect two network namespaces with pillion's own path, for any program
///
/// Creates a device `path` in each namespace, whose address and state `ip` sets. Runs until Ctrl-C,
/// which removes the devices, and then prints the counts of packets as JSON.
#[derive(clap::Args)]
pub struct Args {
    /// Network namespace of the sender: a name under /run/netns, the PID of a process in it, or a
    /// file
    sender: OsString,

    /// Network namespace of the receiver
    receiver: OsString,

    /// Round-trip time, up to 120s
    #[arg(long, value_name = "DURATION", default_value = "150ms", value_parser = parse_duration)]
    rtt: Duration,

    /// Share of packets lost towards the receiver
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = parse_percent)]
    loss: f64,

    /// Share of packets lost towards the sender
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = parse_percent)]
    loss_back: f64,

    /// Seed of the losses
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let direction = |percent: f64| Direction {
            loss: Loss::Uniform(percent / 100.0),
            ..Direction::delayed(self.rtt / 2)
        };
        let config = PathConfig {
            forward: direction(self.loss),
            backward: direction(self.loss_back),
            seed: self.seed,
        };
        config.validate()?;
        let open = |namespace: &OsString| -> Result<Tap> {
            let namespace = NamespaceName::from(namespace.as_os_str()).open()?;
            Ok(namespace.enter(|| Tap::open(DEVICE))??)
        };
        let stop = stop::on_signal()?;
        let path = Path::start(open(&self.sender)?, open(&self.receiver)?, &config)?;
        let mut ticks = Ticks::from_now(Duration::from_secs(1));
        while stop::sleep_until(ticks.next_ns(), &stop) && path.stats().device_gone.is_none() {}
        let stats = path.stop();
        print_json(&stats)?;
        Ok(match stats.device_gone {
            Some(_) => ExitCode::from(INCOMPLETE),
            None => ExitCode::SUCCESS,
        })
    }
}
