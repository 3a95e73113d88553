//! `pillion-lab analyse`: measures of packet traces.

mod files;
mod measure_args;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::{print, print_json};
use pillion_cli::settings::BadInput;
use pillion_cli::settings::policy::{Peer, Ports};
use pillion_lab::analysis::{
    ByteObserver, ConnectionFilter, ConnectionList, FilteredObserver, ListedConnection,
    ListedDirection, Summary, Target, Trace, Traces, outcome, report,
};
use pillion_stats::report::{Column, Table, number};
use pillion_trace::measure::{
    ClockSummary, GroupResults, Meter, MeterOptions, Results, write_tables,
};
use serde::Serialize;
use serde_json::Value;

use files::{OpenedTraces, PeriodArgs, TraceArgs, exit_code};
use measure_args::{MeasureArgs, timeline_text};

pub use files::observe;

/// Analyse packet traces of one end or both: latency, loss, redundancy, throughput
///
/// Reads pcap and pcapng, plain or compressed. The sender's trace shows transmissions and
/// acknowledgements. With the receiver's trace, the analysis also has losses, their repair, and the
/// time when data became readable. Prints a summary.
///
/// Damaged or truncated traces are read as far as possible. Each damaged part is logged, and the
/// exit status is 3. It is 2 if a file is not a trace.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    files: TraceArgs,

    /// List the connections: ends, times, packets and bytes in each direction, how they were opened
    #[arg(long, conflicts_with_all = ["explain", "csv_dir", "html", "percentiles", "group", "slice", "optimum"])]
    list: bool,

    /// Print the timeline of one byte range: sent, lost, bundled, delivered, acknowledged
    ///
    /// CONNECTION is its number in --list. SEQ is relative, as in most tools: the first byte is 1.
    /// `raw=SEQ` is the sequence number on the wire. The direction is the one with more bytes;
    /// `back:` selects the other one.
    #[arg(
        long,
        value_name = "CONNECTION:[back:][raw=]SEQ",
        conflicts_with_all = ["csv_dir", "html", "percentiles", "group", "slice", "optimum", "address", "port", "connection"]
    )]
    explain: Option<Target>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// With --json: also print the distributions, time slices and blocked ranges of each connection;
    /// distributions and slices of groups are always printed
    #[arg(long, requires = "json", conflicts_with_all = ["list", "explain"])]
    distributions: bool,

    /// Also write all measures to FOLDER, as CSV files
    #[arg(long, value_name = "FOLDER")]
    csv_dir: Option<PathBuf>,

    /// Also write a report with figures to FILE, as self-contained HTML
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    measure_args: MeasureArgs,

    #[command(flatten)]
    choice: ChoiceArgs,

    #[command(flatten)]
    period_args: PeriodArgs,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let mut options = self.measure_args.options()?;
        if self.json && self.html.is_none() && self.measure_args.percentiles.is_some() {
            let reason =
                "--percentiles applies to the summary and the report, not to JSON; remove it";
            return Err(BadInput(reason.to_owned()).into());
        }
        let OpenedTraces { traces, groups } = self.files.open(self.period_args.period()?)?;
        if options.groups.is_empty() {
            options.groups = groups;
        }
        if let Some(target) = self.explain {
            return explain(traces, target, self.json);
        }
        if self.list {
            return list(traces, self.choice.into(), self.json);
        }
        Analysis {
            options,
            percentiles: self.measure_args.percentiles(),
            choice: self.choice.into(),
            json: self.json,
            distributions: self.distributions,
            csv_dir: self.csv_dir,
            html: self.html,
        }
        .measure(traces)
    }
}

/// Prints the timeline of one byte range.
pub fn explain(traces: Traces, target: Target, json: bool) -> Result<ExitCode> {
    let observed = observe(traces, ByteObserver::new(target));
    let exit_code = exit_code(&observed)?;
    let clock = observed.finding.as_ref().map(|finding| finding.clock);
    let start_ns: Vec<i64> = observed.traces.iter().map(Trace::start_ns).collect();
    let timeline = observed.observer.timeline(clock.as_ref(), &start_ns);
    let timeline = timeline.map_err(|error| BadInput(error.to_string()))?;
    if json {
        print_json(&timeline)?;
    } else {
        print(&timeline_text(&timeline, &observed.traces))?;
    }
    Ok(exit_code)
}

pub fn list(traces: Traces, choice: ConnectionFilter, json: bool) -> Result<ExitCode> {
    let observed = observe(
        traces,
        FilteredObserver::new(choice, ConnectionList::default()),
    );
    let exit_code = exit_code(&observed)?;
    check_connections(&observed.observer)?;
    let start_ns = observed.traces.first().map_or(0, Trace::start_ns);
    let connections = observed.observer.observer.finish(start_ns);
    if json {
        print_json(&connections)?;
    } else if connections.is_empty() {
        print("no matching TCP connection\n")?;
    } else {
        print(&table(&connections).to_text())?;
    }
    Ok(exit_code)
}

fn table(connections: &[ListedConnection]) -> Table {
    let with_receiver = connections.iter().any(|c| c.there.lost_packets.is_some());
    let mut columns = vec![
        Column::right(""),
        Column::left("opened by"),
        Column::left("to"),
        Column::right("start").unit("s"),
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
            number::seconds(listed.start_s),
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

/// Requested measures and outputs.
pub struct Analysis {
    pub options: MeterOptions,
    pub percentiles: Vec<f64>,
    pub choice: ConnectionFilter,
    pub json: bool,
    /// Whether JSON has the distributions and slices of each connection.
    pub distributions: bool,
    pub csv_dir: Option<PathBuf>,
    pub html: Option<PathBuf>,
}

impl Analysis {
    pub fn measure(self, traces: Traces) -> Result<ExitCode> {
        // Check the output before a long trace is read.
        let report = self.html.as_deref();
        let report = report.map(|file| OutputFile::page("--html", file));
        let report = report.transpose()?;
        if let Some(folder) = &self.csv_dir {
            fs::create_dir_all(folder)
                .with_context(|| format!("write --csv-dir {}", folder.display()))?;
        }
        let chosen = FilteredObserver::new(self.choice, Meter::new(self.options));
        let observed = observe(traces, chosen);
        let exit_code = exit_code(&observed)?;
        check_connections(&observed.observer)?;
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
        let mut outputs = String::new();
        if let Some(folder) = &self.csv_dir {
            let written = write_tables(&results, folder)?;
            outputs += &format!("tables: {} files in {}\n", written.len(), folder.display());
        }
        if let Some(file) = report {
            file.write(&report::page(&summary).to_html())?;
            outputs += &format!("report: {}\n", file.name().display());
        }
        match self.json {
            true if self.distributions => print_json(&results)?,
            true => print_json(&ShortResults::new(&results)?)?,
            false => print(&(summary.text() + &outputs))?,
        }
        Ok(exit_code)
    }
}

/// [`Results`] without the distributions and time slices of connections.
#[derive(Serialize)]
struct ShortResults<'a> {
    start_ns: i64,
    duration_s: f64,
    slice_s: f64,
    clock: &'a Option<ClockSummary>,
    all: &'a GroupResults,
    groups: &'a [GroupResults],
    connections: Vec<Value>,
}

impl<'a> ShortResults<'a> {
    fn new(results: &'a Results) -> Result<Self, serde_json::Error> {
        let connections = results.connections.iter().map(|connection| {
            let mut value = serde_json::to_value(connection)?;
            remove_distributions(&mut value);
            Ok(value)
        });
        Ok(Self {
            start_ns: results.start_ns,
            duration_s: results.duration_s,
            slice_s: results.slice_s,
            clock: &results.clock,
            all: &results.all,
            groups: &results.groups,
            connections: connections.collect::<Result<_, _>>()?,
        })
    }
}

/// Lists of a connection, which are as long as the trace.
const LISTS: [&str; 2] = ["slices", "blocks"];

/// Removes distributions, which have quantiles, and lists from an object and the objects in it.
fn remove_distributions(value: &mut Value) {
    if let Value::Object(fields) = value {
        let is_short =
            |name: &str, field: &Value| !LISTS.contains(&name) && field.get("p50").is_none();
        fields.retain(|name, field| is_short(name, field));
        fields.values_mut().for_each(remove_distributions);
    }
}

/// Options for the connections: all kinds of conditions that are given must match.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Connections")]
pub struct ChoiceArgs {
    /// Only connections with an end at this address or in this network, as in 192.0.2.0/24, or at
    /// an address of this host name; may be repeated
    #[arg(long, value_name = "PEER")]
    address: Vec<Peer>,

    /// Only connections with an end at this port, or at a port of this range, as in 8000-8100; may
    /// be repeated
    #[arg(long, value_name = "PORTS")]
    port: Vec<Ports>,

    /// Only the connection with this number in --list; may be repeated
    #[arg(long, value_name = "N")]
    connection: Vec<u64>,
}

/// Reports the first connection of --connection that does not exist.
fn check_connections<O>(chosen: &FilteredObserver<O>) -> Result<(), BadInput> {
    chosen.missing().map_or(Ok(()), |number| {
        let reason = "no connection with the number";
        Err(BadInput(format!(
            "--connection: {reason} {number}; --list shows the numbers"
        )))
    })
}

impl From<ChoiceArgs> for ConnectionFilter {
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
