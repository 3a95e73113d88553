use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::print::say_line;
use pillion_cli::settings::BadInput;
use pillion_lab::analysis::Traces;
use pillion_lab::analysis::writes::Writes;
use pillion_lab::settings::{Itt, parse_host_port};
use pillion_lab::traffic::wire::MAX_SIZE;
use pillion_lab::traffic::{
    Group, Kind, ListError, RampUp, Traffic, WRITES_HEADING, Write, read_writes,
};
use pillion_trace::input::{InputError, Unreadable};

use super::send::SendingArgs;
use crate::commands::analyse::observe;

/// Send the writes of an application again, to `pillion-lab traffic receive`
///
/// The writes are those of one connection of a packet trace, as far as it shows them, or of a list.
#[derive(clap::Args)]
pub struct Args {
    /// A packet trace (pcap or pcapng, plain or compressed), or a list of writes as CSV: the
    /// heading gap_ms,size, then a write a line, the milliseconds since the one before and the
    /// bytes
    file: PathBuf,

    /// The connection of the trace, by its number in `pillion-lab analyse FILE --list` [default:
    /// the only one with data]
    #[arg(long, value_name = "N")]
    connection: Option<u64>,

    /// The receiver
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_host_port)]
    to: SocketAddr,

    /// How many times as fast
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    speed: f64,

    /// Connections, each of which sends all of it
    #[arg(long, value_name = "N", default_value_t = 1)]
    copies: usize,

    /// Milliseconds between the starts of two copies, and their standard deviation
    /// [default: all start at once]
    #[arg(long, value_name = "MS[:SD]")]
    ramp_up: Option<Itt>,

    #[command(flatten)]
    sending: SendingArgs,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let kind = Kind::Replay {
            writes: self.writes()?.into(),
            speed: self.speed,
        };
        let group = Group {
            streams: self.copies,
            ramp_up: self.ramp_up.map_or(RampUp::Spread, Itt::ramp_up),
            ..Group::new(self.file.display().to_string(), kind)
        };
        self.sending.execute(Traffic::new(self.to, group))
    }

    fn writes(&self) -> Result<Vec<Write>> {
        let file = self.file.display().to_string();
        match Traces::one(&self.file) {
            Ok(traces) => {
                let writes = observe(traces, Writes::of(self.connection)).observer;
                let written = writes.written(MAX_SIZE);
                let written = written.map_err(|why| BadInput(format!("{file}: {why}")))?;
                say_line!("pillion-lab: {written}");
                let writes = written.writes.iter();
                let writes = writes.map(|it| Write {
                    gap: it.gap,
                    size: it.size,
                });
                Ok(writes.collect())
            }
            Err(InputError {
                cause: Unreadable::NotATrace(_),
                ..
            }) => {
                if self.connection.is_some() {
                    let why =
                        "not a packet trace, so it has no connections; leave out --connection";
                    return Err(BadInput(format!("{file}: {why}")).into());
                }
                let writes = read_writes(&self.file).map_err(|error| match error {
                    ListError::Line { line: 2.., .. } => BadInput(error.to_string()),
                    _ => BadInput(format!(
                        "{file}: neither a packet trace, pcap or pcapng, nor a list of writes, \
                         whose first line is {WRITES_HEADING}"
                    )),
                });
                Ok(writes?)
            }
            Err(error) => Err(error.into()),
        }
    }
}
