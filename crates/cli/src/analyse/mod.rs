//! `pillion analyse`: packet traces in, what they tell out.

mod choice;
mod explain;
mod list;
mod traces;

use std::process::ExitCode;

use anyhow::Result;

use choice::Choice;
use explain::Target;
use traces::Files;

/// Analyse packet traces: latency, loss, redundancy, throughput, of one end or of both
///
/// Reads pcap and pcapng, plain or compressed. The trace at the sender alone shows what was sent
/// and when it was acknowledged; with the one at the receiver beside it also what was lost, what
/// brought it after all, and when the application could read it.
///
/// A trace that is damaged or breaks off is read as far as it goes: each place is named on
/// standard error, and the exit status is 3. It is 2 for a file that is no trace.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("output").required(true))]
pub struct Args {
    #[command(flatten)]
    files: Files,

    /// List the connections: ends, times, packets and bytes each way, how they were opened
    #[arg(long, group = "output")]
    list: bool,

    /// Tell the story of one byte range: sent, lost, bundled again, delivered, acknowledged
    ///
    /// CONNECTION is its number in --list. SEQ is relative, as most tools show it: the first byte
    /// is 1. `raw=SEQ` is the sequence number as it stands on the wire. The byte is looked for in
    /// the direction in which more bytes went, with `back:` before it in the other one.
    #[arg(long, group = "output", value_name = "CONNECTION:[back:][raw=]SEQ")]
    explain: Option<Target>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    choice: Choice,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let traces = self.files.open()?;
        if let Some(target) = self.explain {
            return explain::print(traces, target, self.json);
        }
        list::print(traces, self.choice, self.json)
    }
}
