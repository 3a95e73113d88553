use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::settings::BadInput;
use pillion_lab::analysis::Traces;
use pillion_lab::analysis::writes::WriteObserver;
use pillion_lab::settings::{Itt, parse_host_port};
use pillion_lab::traffic::wire::MAX_SIZE;
use pillion_lab::traffic::{
    Group, Kind, ListError, RampUp, Traffic, WRITES_HEADING, Write, read_writes,
};
use pillion_trace::input::{InputError, InputErrorKind};

use super::send::SenderArgs;
use crate::commands::analyse::observe;

/// Replay the writes of an application to `pillion-lab traffic receive`
///
/// The writes come from one connection of a packet trace, as far as it shows them, or from a list.
#[derive(clap::Args)]
pub struct Args {
    /// Packet trace (pcap or pcapng, plain or compressed), or a CSV list of writes: the header
    /// gap_ms,size, then one write per line, the milliseconds since the previous one and the bytes
    file: PathBuf,

    /// Number of the connection in `pillion-lab analyse FILE --list` [default: the only one with
    /// data]
    #[arg(long, value_name = "N")]
    connection: Option<u64>,

    /// Address of the receiver
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_host_port)]
    to: SocketAddr,

    /// Speed relative to the original
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    speed: f64,

    /// Connections that each send all writes
    #[arg(long, value_name = "N", default_value_t = 1)]
    copies: usize,

    /// Time between the starts of two copies, and its standard deviation [default: all start
    /// immediately]
    #[arg(long, value_name = "TIME[:SD]")]
    ramp_up: Option<Itt>,

    #[command(flatten)]
    sending: SenderArgs,
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
        match Traces::open_single(&self.file) {
            Ok(traces) => {
                let writes = observe(traces, WriteObserver::new(self.connection)).observer;
                let written = writes.finish(MAX_SIZE);
                let written = written.map_err(|why| BadInput(format!("{file}: {why}")))?;
                log::info!("{written}");
                let writes = written.writes.iter();
                let writes = writes.map(|it| Write {
                    gap: it.gap,
                    size: it.size,
                });
                Ok(writes.collect())
            }
            Err(InputError {
                cause: InputErrorKind::NotATrace(_),
                ..
            }) => {
                if self.connection.is_some() {
                    let why = "not a packet trace; remove --connection";
                    return Err(BadInput(format!("{file}: {why}")).into());
                }
                let writes = read_writes(&self.file).map_err(|error| match error {
                    ListError::Line { line: 2.., .. } => BadInput(error.to_string()),
                    _ => BadInput(format!(
                        "invalid file `{file}`: expected a packet trace (pcap, pcapng), or a list of writes \
                         with the header {WRITES_HEADING}"
                    )),
                });
                Ok(writes?)
            }
            Err(error) => Err(error.into()),
        }
    }
}
