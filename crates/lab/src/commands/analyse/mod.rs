//! `pillion-lab analyse`: measures of packet traces.

mod choice;
mod explain;
mod files;
mod list;
mod measured;
mod part;
mod results;
mod tell;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::settings::BadInput;
use pillion_lab::analysis::Target;

use choice::ChoiceArgs;
pub use files::observe;
use files::{Files, Opened};
use measured::Measured;
use part::Part;

/// Analyse packet traces: latency, loss, redundancy, throughput, of one end or of both
///
/// Reads pcap and pcapng, plain or compressed. The trace at the sender alone shows what was sent
/// and when it was acknowledged; with the one at the receiver beside it also what was lost, what
/// brought it after all, and when the application could read it. Prints a summary.
///
/// A trace that is damaged or breaks off is read as far as it goes: each place is named on
/// standard error, and the exit status is 3. It is 2 for a file that is no trace.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    files: Files,

    /// List the connections instead: ends, times, packets and bytes each way, how they were opened
    #[arg(long, conflicts_with_all = ["explain", "csv", "report", "percentiles", "group", "slice", "optimum"])]
    list: bool,

    /// Tell the story of one byte range instead: sent, lost, bundled again, delivered, acknowledged
    ///
    /// CONNECTION is its number in --list. SEQ is relative, as most tools show it: the first byte
    /// is 1. `raw=SEQ` is the sequence number as it stands on the wire. The byte is looked for in
    /// the direction in which more bytes went, with `back:` before it in the other one.
    #[arg(
        long,
        value_name = "CONNECTION:[back:][raw=]SEQ",
        conflicts_with_all = ["csv", "report", "percentiles", "group", "slice", "optimum", "address", "port", "connection"]
    )]
    explain: Option<Target>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Write all measures as CSV files into a folder as well
    #[arg(long, value_name = "FOLDER")]
    csv: Option<PathBuf>,

    /// Write a report with figures as well, one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    #[command(flatten)]
    measured: Measured,

    #[command(flatten)]
    choice: ChoiceArgs,

    #[command(flatten)]
    part: Part,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let mut options = self.measured.options()?;
        if self.json && self.report.is_none() && self.measured.percentiles.is_some() {
            let why = "--percentiles is of the summary and the report, and JSON has its own; leave it out";
            return Err(BadInput(why.to_owned()).into());
        }
        let Opened { traces, groups } = self.files.open(self.part.period()?)?;
        if options.groups.is_empty() {
            options.groups = groups;
        }
        if let Some(target) = self.explain {
            return explain::explain(traces, target, self.json);
        }
        if self.list {
            return list::list(traces, self.choice.into(), self.json);
        }
        results::Wanted {
            options,
            percentiles: self.measured.percentiles(),
            choice: self.choice.into(),
            json: self.json,
            csv: self.csv,
            report: self.report,
        }
        .measure(traces)
    }
}
