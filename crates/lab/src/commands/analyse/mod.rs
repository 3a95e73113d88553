//! `pillion-lab analyse`: measures of packet traces.

mod files;
mod measured;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::{print, print_json};
use pillion_cli::settings::BadInput;
use pillion_cli::settings::policy::{Peer, Ports};
use pillion_lab::analysis::{
    Choice, Chosen, List, Listed, ListedDirection, Summary, Target, Trace, Traces, Witness,
    outcome, report,
};
use pillion_stats::report::{Column, Table, number};
use pillion_trace::measure::{Meter, Options, write_tables};

use files::{Files, Opened, Part, exit_code};
use measured::{Measured, story_text};

pub use files::observe;

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
            return explain(traces, target, self.json);
        }
        if self.list {
            return list(traces, self.choice.into(), self.json);
        }
        Wanted {
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

/// Tells the story of one byte range.
pub fn explain(traces: Traces, target: Target, json: bool) -> Result<ExitCode> {
    let observed = observe(traces, Witness::new(target));
    let exit_code = exit_code(&observed);
    let clock = observed.finding.as_ref().map(|finding| finding.clock);
    let begin_ns: Vec<i64> = observed.traces.iter().map(Trace::begin_ns).collect();
    let story = observed.observer.story(clock.as_ref(), &begin_ns);
    let story = story.map_err(|error| BadInput(error.to_string()))?;
    if json {
        print_json(&story)?;
    } else {
        print(&story_text(&story, &observed.traces))?;
    }
    Ok(exit_code)
}

pub fn list(traces: Traces, choice: Choice, json: bool) -> Result<ExitCode> {
    let observed = observe(traces, Chosen::new(choice, List::default()));
    all_found(&observed.observer)?;
    let exit_code = exit_code(&observed);
    let begin_ns = observed.traces.first().map_or(0, Trace::begin_ns);
    let connections = observed.observer.observer.finish(begin_ns);
    if json {
        print_json(&connections)?;
    } else if connections.is_empty() {
        print("no TCP connection in the trace, or none of those chosen\n")?;
    } else {
        print(&table(&connections).to_text())?;
    }
    Ok(exit_code)
}

fn table(connections: &[Listed]) -> Table {
    let with_receiver = connections.iter().any(|c| c.there.lost_packets.is_some());
    let mut columns = vec![
        Column::right(""),
        Column::left("opened by"),
        Column::left("to"),
        Column::right("begin").unit("s"),
        Column::right("duration").unit("s"),
        Column::left("handshake"),
        Column::right("packets"),
        Column::right("new bytes"),
        Column::right("bundled"),
        Column::right("retransmitted"),
    ];
    if with_receiver {
        columns.push(Column::right("lost"));
    }
    let mut table = Table::new("", columns);
    for listed in connections {
        let both = |of: fn(&ListedDirection) -> u64| {
            let [there, back] = [&listed.there, &listed.back].map(|way| number::count(of(way)));
            format!("{there} / {back}")
        };
        table.row([
            listed.connection.to_string(),
            listed.opened_by.to_string(),
            listed.to.to_string(),
            number::seconds(listed.begin_s),
            number::seconds(listed.duration_s),
            outcome(listed.handshake).to_owned(),
            both(|way| way.packets),
            both(|way| way.new_bytes),
            both(|way| way.bundled_packets),
            both(|way| way.retransmitted_packets),
            match listed.there.lost_packets {
                Some(_) => both(|way| way.lost_packets.unwrap_or_default()),
                None => String::new(),
            },
        ]);
    }
    table
}

/// What is to be measured, and where it is to go.
pub struct Wanted {
    pub options: Options,
    pub percentiles: Vec<f64>,
    pub choice: Choice,
    pub json: bool,
    pub csv: Option<PathBuf>,
    pub report: Option<PathBuf>,
}

impl Wanted {
    pub fn measure(self, traces: Traces) -> Result<ExitCode> {
        // What cannot be written is said before a long trace is read.
        let report = self.report.as_deref();
        let report = report.map(|file| OutputFile::page("--report", file));
        let report = report.transpose()?;
        if let Some(folder) = &self.csv {
            fs::create_dir_all(folder)
                .with_context(|| format!("write --csv {}", folder.display()))?;
        }
        let chosen = Chosen::new(self.choice, Meter::new(self.options));
        let observed = observe(traces, chosen);
        all_found(&observed.observer)?;
        let exit_code = exit_code(&observed);
        let meter = observed.observer.observer;
        let results = match &observed.finding {
            Some(finding) => meter.finish_pair(&finding.clock),
            None => meter.finish(),
        };
        let summary = Summary {
            results: &results,
            percentiles: &self.percentiles,
            traces: &observed.traces,
        };
        let mut said = String::new();
        if let Some(folder) = &self.csv {
            let written = write_tables(&results, folder)?;
            said += &format!("tables: {} files in {}\n", written.len(), folder.display());
        }
        if let Some(file) = report {
            file.write(&report::page(&summary).to_html())?;
            said += &format!("report: {}\n", file.name().display());
        }
        if self.json {
            print_json(&results)?;
        } else {
            print(&(summary.text() + &said))?;
        }
        Ok(exit_code)
    }
}

/// Which connections are looked at: those that fit each kind of condition given.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Which connections")]
pub struct ChoiceArgs {
    /// Look at connections with an end at this address or in this network, as in 192.0.2.0/24, or at
    /// an address that this host's name has now; may be repeated
    #[arg(long, value_name = "PEER")]
    address: Vec<Peer>,

    /// Look at connections with an end at this port, or at one of a range, as in 8000-8100; may be
    /// repeated
    #[arg(long, value_name = "PORTS")]
    port: Vec<Ports>,

    /// Look at the connection with this number in --list; may be repeated
    #[arg(long, value_name = "N")]
    connection: Vec<u64>,
}

/// An error names a connection that was chosen by its number, and that is not there.
fn all_found<O>(chosen: &Chosen<O>) -> Result<(), BadInput> {
    chosen.missing().map_or(Ok(()), |number| {
        let why = "no connection has the number";
        Err(BadInput(format!(
            "--connection: {why} {number}; --list has their numbers"
        )))
    })
}

impl From<ChoiceArgs> for Choice {
    fn from(args: ChoiceArgs) -> Self {
        Self {
            addresses: args
                .address
                .into_iter()
                .flat_map(|peer| peer.nets)
                .collect(),
            ports: args.port.into_iter().map(|ports| ports.0).collect(),
            connections: args.connection,
        }
    }
}
