//! `pillion-lab queue`: events of a device's queue.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::unistd::Pid;
use pillion_cli::command::{Signals, report_spawn_error};
use pillion_cli::exit::INCOMPLETE;
use pillion_cli::print::{print, print_json};
use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::parse_duration;
use pillion_cli::stop;
use pillion_lab::queue::measure::{Drops, Quantiles, QueueCounts, QueueMeter, Stream, Summary};
use pillion_lab::queue::{Event, Reasons, Recording, Row, Target};
use pillion_lab::records::{ReadError, read};
use pillion_stats::names::sanitized;
use pillion_stats::report::{Column, Table, number};

use crate::commands::netns::NetnsArgs;
use crate::commands::records_output::RecordsOutput;

/// Record the queue of a device: the time and outcome of each packet
///
/// For every packet that is offered to the queueing discipline of DEV (including its children),
/// records the arrival, the departure or the reason of the drop, and the queue's length. Runs until
/// Ctrl-C, for --duration, or as long as CMD runs. Then prints loss and queueing delay, for all
/// packets and for each stream, and the pattern of drops. The traffic is not changed. docs/lab/queue.md
/// describes the measures.
#[derive(clap::Args)]
#[command(
    override_usage = "pillion-lab queue [OPTIONS] <DEV> [-- <CMD>...]\n       \
                            pillion-lab queue [OPTIONS] --read <FILE>"
)]
pub struct Args {
    /// Network device
    #[arg(value_name = "DEV", required_unless_present = "read")]
    device: Option<String>,

    #[command(flatten)]
    netns: NetnsArgs,

    /// Stop after this time
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "command")]
    duration: Option<Duration>,

    /// Read the packets from a file of --csv
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "name", "duration", "command"])]
    read: Option<PathBuf>,

    /// Write one line per packet to FILE; compressed if it ends in .zst
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Print the measures as JSON
    #[arg(long)]
    json: bool,

    /// Record as long as this command runs, and exit with its status
    #[arg(value_name = "CMD", last = true)]
    command: Vec<OsString>,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        match (&self.read, &self.device) {
            (Some(file), _) => self.show(file),
            (None, Some(device)) => self.record(device),
            (None, None) => unreachable!("clap requires one of both"),
        }
    }

    fn print(&self, summary: &Summary) -> Result<()> {
        match self.json {
            true => print_json(summary),
            false => print(&text(summary)),
        }
    }
}

impl Args {
    pub fn record(&self, device: &str) -> Result<ExitCode> {
        let target = self.netns.open()?.enter(|| Target::find(device))??;
        let reasons = Arc::new(Reasons::from_running_kernel());
        let outputs = Arc::new(Mutex::new(Outputs::open(self)?));
        let shared = (Arc::clone(&outputs), Arc::clone(&reasons));
        // Signals stop the recording cleanly from the start.
        let stop_condition = match self.command.is_empty() {
            true => StopCondition::For(self.duration, stop::on_signal()?),
            false => StopCondition::While(Signals::block().context("block signals")?),
        };
        let recording = Recording::start(&target, move |event| {
            let (outputs, reasons) = &shared;
            let mut outputs = outputs.lock().unwrap_or_else(PoisonError::into_inner);
            outputs.add(&event, reasons)
        })?;
        let code = match stop_condition {
            StopCondition::For(duration, stop) => {
                log::info!("recording the queue of {device} until Ctrl-C");
                wait(duration, &stop, &recording);
                ExitCode::SUCCESS
            }
            StopCondition::While(mut signals) => self.run(&mut signals)?,
        };
        recording.stop()?;
        let outputs = Arc::into_inner(outputs).context("the recording is still running")?;
        let outputs = outputs.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.print(&outputs.finish(&reasons)?)?;
        Ok(code)
    }

    fn run(&self, signals: &mut Signals) -> Result<ExitCode> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Ok(ExitCode::SUCCESS);
        };
        let mut command = Command::new(program);
        let inherited = signals.inherited().clone();
        // SAFETY: only system calls are made between fork and exec.
        unsafe {
            command.pre_exec(move || inherited.restore().map_err(io::Error::from));
        }
        match command.args(arguments).spawn() {
            Ok(child) => {
                let child = Pid::from_raw(child.id().cast_signed());
                let ended = signals.forward_to(child, |_| Ok(()));
                ended.context("wait for the command")
            }
            Err(error) => Ok(report_spawn_error(program, &error)),
        }
    }
}

/// Event that ends the recording.
enum StopCondition {
    For(Option<Duration>, Arc<AtomicBool>),
    While(Signals),
}

fn wait(duration: Option<Duration>, stop: &AtomicBool, recording: &Recording) {
    let started_at = Instant::now();
    let left = || match duration {
        Some(duration) => duration.saturating_sub(started_at.elapsed()),
        None => Duration::MAX,
    };
    while !stop.load(Ordering::Relaxed) && !recording.has_failed() && !left().is_zero() {
        thread::sleep(left().min(Duration::from_millis(50)));
    }
}

impl Args {
    /// Prints the measures of a file of packets. Packets before a damaged line are counted.
    pub fn show(&self, file: &Path) -> Result<ExitCode> {
        let name = file.display().to_string();
        let bad = |error: ReadError| BadInput(format!("{name}: {error}"));
        let rows = read::<Row>(file).map_err(bad)?;
        let mut outputs = Outputs::open(self)?;
        let mut reasons = Reasons::default();
        let mut code = ExitCode::SUCCESS;
        for (number, row) in rows.enumerate() {
            match row {
                Ok(row) => {
                    let event = row.event(&mut reasons);
                    outputs.add(&event, &reasons)?;
                }
                Err(ReadError::Io(error)) => {
                    return Err(anyhow!(error).context(format!("read {name}")));
                }
                Err(error) if number == 0 => return Err(bad(error).into()),
                Err(damage) => {
                    log::warn!("{name}: {damage}");
                    code = ExitCode::from(INCOMPLETE);
                }
            }
        }
        self.print(&outputs.finish(&reasons)?)?;
        Ok(code)
    }
}

/// Outputs of queue events: the file of --csv, and the measures.
pub struct Outputs {
    csv: Option<RecordsOutput>,
    measures: QueueMeter,
}

impl Outputs {
    pub fn open(args: &Args) -> Result<Self> {
        let csv = args.csv.as_ref();
        let csv = csv.map(|path| RecordsOutput::to("--csv", path));
        Ok(Self {
            csv: csv.transpose()?,
            measures: QueueMeter::default(),
        })
    }

    pub fn add(&mut self, event: &Event, reasons: &Reasons) -> io::Result<()> {
        self.measures.add(event);
        match &mut self.csv {
            Some(csv) => csv.write(Row::of(event, reasons)),
            None => Ok(()),
        }
    }

    pub fn finish(self, reasons: &Reasons) -> Result<Summary> {
        self.csv.map(RecordsOutput::finish).transpose()?;
        Ok(self.measures.finish(reasons))
    }
}

/// Streams in the table; JSON has all.
const STREAMS: usize = 20;

/// Formats the measures of a queue.
pub fn text(summary: &Summary) -> String {
    let mut text = accounts(summary).to_text();
    text += "\n";
    text += &lengths(summary).to_text();
    for line in lines(summary) {
        let _ = write!(text, "\n{line}");
    }
    text + "\n"
}

fn accounts(summary: &Summary) -> Table {
    let mut table = Table::new(
        "Packets",
        [
            Column::left(""),
            Column::right("offered"),
            Column::right("sent"),
            Column::right("refused"),
            Column::right("dropped"),
            Column::right("loss"),
            Column::right("delay mean").unit("ms"),
            Column::right("p50").unit("ms"),
            Column::right("p90").unit("ms"),
            Column::right("p99").unit("ms"),
            Column::right("max").unit("ms"),
        ],
    );
    table.row(cells("all packets".to_owned(), &summary.all));
    let mut streams: Vec<&Stream> = summary.streams.iter().collect();
    streams.sort_by_key(|it| {
        std::cmp::Reverse((it.account.refused + it.account.dropped, it.account.offered))
    });
    for stream in streams.iter().take(STREAMS) {
        table.row(cells(name(stream), &stream.account));
    }
    table
}

fn name(stream: &Stream) -> String {
    let (source, destination) = (stream.ends.source, stream.ends.destination);
    let protocol = match stream.ends.protocol {
        6 => String::new(),
        17 => "UDP ".to_owned(),
        other => format!("protocol {other} "),
    };
    match stream.ends.protocol {
        6 | 17 => format!("{protocol}{source} > {destination}"),
        _ => format!("{protocol}{} > {}", source.ip(), destination.ip()),
    }
}

fn cells(name: String, account: &QueueCounts) -> Vec<String> {
    let delay = &account.delay_ms;
    let counts = [
        account.offered,
        account.sent,
        account.refused,
        account.dropped,
    ];
    let delays = [delay.mean, delay.p50, delay.p90, delay.p99, delay.max];
    std::iter::once(name)
        .chain(counts.map(number::count))
        .chain([number::percent(account.loss())])
        .chain(delays.map(number::millis))
        .collect()
}

fn lengths(summary: &Summary) -> Table {
    let headers = ["mean", "p50", "p90", "p99", "p99.9", "max"];
    let columns = headers.map(Column::right);
    let columns = std::iter::once(Column::left("queue length")).chain(columns);
    let mut table = Table::new("Queue length", columns);
    let mut row = |name: &str, of: &Quantiles, show: fn(f64) -> String| {
        let values = [of.mean, of.p50, of.p90, of.p99, of.p99_9, of.max];
        let cells = values.map(|value| value.map_or_else(|| number::count(0), show));
        table.row(std::iter::once(name.to_owned()).chain(cells));
    };
    row("packets", &summary.length.packets, |value| {
        format!("{value:.1}")
    });
    row("bytes", &summary.length.bytes, |value| {
        format!("{value:.0}")
    });
    table
}

fn lines(summary: &Summary) -> Vec<String> {
    let mut lines = vec![format!("recorded for {:.1} s", summary.duration_s)];
    if summary.missed > 0 {
        let missed = number::count(summary.missed);
        lines.push(format!("{missed} events were lost"));
    }
    let all = &summary.all;
    if all.unseen > 0 {
        let unseen = number::count(all.unseen);
        lines.push(format!(
            "{unseen} packets without an outcome: still in the queue, or split by it"
        ));
    }
    if all.unannounced > 0 {
        let sent = number::count(all.unannounced);
        lines.push(format!(
            "{sent} further packets were sent whose arrival was not recorded"
        ));
    }
    if !all.reasons.is_empty() {
        let reasons = all.reasons.iter();
        // A file of packets can contain any text.
        let reasons =
            reasons.map(|(name, count)| format!("{} {}", sanitized(name), number::count(*count)));
        lines.push(format!(
            "drop reasons: {}",
            reasons.collect::<Vec<_>>().join(", ")
        ));
        lines.extend(drops(&summary.drops));
    }
    lines
}

fn drops(drops: &Drops) -> Vec<String> {
    let mut lines = vec![
        format!("drops in a row: {}", runs(&drops.runs)),
        format!(
            "drops in a row within a stream: {}",
            runs(&drops.runs_of_streams)
        ),
    ];
    let gaps = [
        ("between drops", &drops.gaps_ms),
        ("between drops of a stream", &drops.gaps_of_streams_ms),
    ];
    for (name, of) in gaps {
        if of.p50.is_some() {
            let [p50, p90, max] = [of.p50, of.p90, of.max].map(number::millis);
            lines.push(format!(
                "time {name}: p50 {p50} ms, p90 {p90} ms, max {max} ms"
            ));
        }
    }
    let dispersion = drops.dispersion.iter();
    let dispersion = dispersion.filter_map(|it| {
        Some(format!(
            "{} in {} ms",
            number::ratio(it.index?),
            it.window_ms
        ))
    });
    let dispersion: Vec<_> = dispersion.collect();
    if !dispersion.is_empty() {
        lines.push(format!(
            "dispersion of drops (1: at random): {}",
            dispersion.join(", ")
        ));
    }
    if let Some(period) = drops.period {
        let correlation = number::ratio(period.correlation);
        lines.push(format!(
            "drops recur after {} ms (correlation {correlation})",
            period.lag_ms
        ));
    }
    if let Some(spread) = drops.spread_over_streams {
        let spread = number::ratio(spread);
        lines.push(format!(
            "spread of drops over streams (1: equal loss): {spread}"
        ));
    }
    lines
}

fn runs(runs: &BTreeMap<u64, u64>) -> String {
    const SHOWN: u64 = 5;
    let mut parts: Vec<_> = runs
        .range(..=SHOWN)
        .map(|(length, count)| format!("{length}: {}", number::count(*count)))
        .collect();
    let longer: u64 = runs.range(SHOWN + 1..).map(|(_, count)| count).sum();
    if let (Some(longest), 1..) = (runs.keys().last(), longer) {
        parts.push(format!(
            "more: {} (longest {longest})",
            number::count(longer)
        ));
    }
    parts.join(", ")
}
