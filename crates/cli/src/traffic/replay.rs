use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use pillion_traffic::{Group, Kind, RampUp, Traffic, read_writes};

use super::sending::SendingArgs;
use crate::exit::BadInput;
use crate::times::{Itt, parse_itt};

/// Send the writes of an application again, to `pillion traffic receive`
#[derive(clap::Args)]
pub struct Args {
    /// The writes as CSV: the heading gap_ms,size, then a write a line, the milliseconds since
    /// the one before and the bytes
    file: PathBuf,

    /// The receiver
    #[arg(long, value_name = "ADDR:PORT")]
    to: SocketAddr,

    /// How many times as fast
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    speed: f64,

    /// Connections, each of which sends all of it
    #[arg(long, value_name = "N", default_value_t = 1)]
    copies: usize,

    /// Milliseconds between the starts of two copies, and their standard deviation
    /// [default: all start at once]
    #[arg(long, value_name = "MS[:SD]", value_parser = parse_itt)]
    ramp_up: Option<Itt>,

    #[command(flatten)]
    sending: SendingArgs,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let writes = read_writes(&self.file).map_err(|error| BadInput(error.to_string()))?;
        let kind = Kind::Replay {
            writes: writes.into(),
            speed: self.speed,
        };
        let group = Group {
            streams: self.copies,
            ramp_up: self.ramp_up.map_or(RampUp::Spread, Itt::ramp_up),
            ..Group::new(self.file.display().to_string(), kind)
        };
        self.sending.execute(Traffic::new(self.to, group))
    }
}
