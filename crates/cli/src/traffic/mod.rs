mod profiles;
mod receive;
mod replay;
mod send;
mod sending;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use pillion_records::Writer;
use pillion_report::number;
use pillion_traffic::{Quantiles, Record};

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

/// An address and a port, or a host's name and a port: its first address then.
fn parse_endpoint(text: &str) -> Result<SocketAddr, String> {
    const EXPECTED: &str = "expected an address or a host's name, and a port, as in \
                            192.0.2.1:7000, [2001:db8::1]:7000 or game.example.org:7000";
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let is_host = |(host, port): (&str, &str)| {
        !host.is_empty() && !host.contains(':') && port.parse::<u16>().is_ok()
    };
    if !text.rsplit_once(':').is_some_and(is_host) {
        return Err(EXPECTED.to_owned());
    }
    let found = text.to_socket_addrs();
    let mut found = found.map_err(|error| format!("the name has no address: {error}"))?;
    found
        .next()
        .ok_or_else(|| "the name has no address".to_owned())
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

/// A file of records to write, made before anything else is done.
struct RecordsFile(Option<Writer>);

impl RecordsFile {
    fn create(path: Option<&Path>) -> Result<Self> {
        let create =
            |path: &Path| Writer::create(path).with_context(|| format!("write {}", path.display()));
        Ok(Self(path.map(create).transpose()?))
    }

    fn write(self, records: &[Record]) -> Result<()> {
        let Some(mut file) = self.0 else {
            return Ok(());
        };
        let written = file.write(records).and_then(|()| file.finish());
        written.context("write --records")
    }
}
