use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use pillion_analysis::{Observed, OpenError, Traces};
use pillion_trace::input::Progress;
use pillion_trace::{Observer, Period};

use crate::exit::{self, BadInput};
use crate::progress;

/// Where the traces are.
#[derive(clap::Args)]
pub struct Files {
    /// The trace, taken at the sender of the data; `-` for standard input
    #[arg(value_name = "SENDER")]
    sender: PathBuf,

    /// The trace of the same connections at their receiver; its clock may be another
    #[arg(long, value_name = "RECEIVER")]
    receiver: Option<PathBuf>,

    /// An address that the network translates: as the receiver's trace shows it, and as the
    /// sender's does; may be repeated. Most are found without
    #[arg(long, value_name = "THERE=HERE", value_parser = parse_nat, requires = "receiver")]
    nat: Vec<(IpAddr, IpAddr)>,
}

impl Files {
    pub fn open(self, period: Period) -> Result<Traces> {
        let traces = Traces::open(&self.sender, self.receiver.as_deref(), self.nat, period);
        traces.map_err(|error| match error {
            OpenError::OneInput => BadInput(error.to_string()).into(),
            OpenError::Input(error) => error.into(),
        })
    }
}

/// Reads traces to their ends, shows how far that has come, and says on standard error where they
/// are damaged.
pub fn observe<O: Observer>(traces: Traces, observer: O) -> Observed<O> {
    let followed = traces.progress();
    let total = followed.iter().map(Progress::total).sum();
    let read = move || followed.iter().map(Progress::read).sum();
    let progress = progress::Progress::read(total, read);
    let observed = traces.observe(observer);
    progress.finish();
    for trace in &observed.traces {
        for warning in trace.input.warnings() {
            eprintln!("pillion: {}: {warning}", trace.name);
        }
    }
    observed
}

/// Whether all was read.
pub fn exit_code<O>(observed: &Observed<O>) -> ExitCode {
    if observed.is_damaged() {
        ExitCode::from(exit::INCOMPLETE)
    } else {
        ExitCode::SUCCESS
    }
}

fn parse_nat(text: &str) -> Result<(IpAddr, IpAddr), String> {
    let pair = text.split_once('=');
    let pair = pair.and_then(|(there, here)| Some((there.parse().ok()?, here.parse().ok()?)));
    pair.ok_or_else(|| format!("`{text}` is not of the form 203.0.113.9=10.0.0.7"))
}
