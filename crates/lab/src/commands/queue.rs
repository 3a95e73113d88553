//! `pillion-lab queue`: what a device's queue did with each packet.

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
use pillion_cli::command::{Signals, cannot_run};
use pillion_cli::exit::INCOMPLETE;
use pillion_cli::print::{print, print_json, say_line};
use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::parse_duration;
use pillion_cli::stop;
use pillion_lab::PROGRAM;
use pillion_lab::queue::measure::{Account, Drops, Measures, Quantiles, Stream, Summary};
use pillion_lab::queue::{Event, Reasons, Recording, Row, Target};
use pillion_lab::records::{ReadError, read};
use pillion_stats::names::without_steering;
use pillion_stats::report::{Column, Table, number};

use crate::commands::netns::NetnsArgs;
use crate::commands::records_output::RecordsOutput;

/// Watch the queue of a device: what became of each packet, when and why
///
/// Every packet that is offered to the queueing discipline of DEV (its children included) is
/// noted: when it arrived and left, whether it was sent or dropped and for what reason, how
/// long the queue was. Watches until Ctrl-C, for --duration, or while CMD runs; then prints
/// losses and queueing delay, of all packets and of each stream, and how drops lie together.
/// The traffic is not changed. docs/queue.md explains the measures.
#[derive(clap::Args)]
#[command(
    override_usage = "pillion-lab queue [OPTIONS] <DEV> [-- <CMD>...]\n       \
                            pillion-lab queue [OPTIONS] --from <FILE>"
)]
pub struct Args {
    /// The device
    #[arg(value_name = "DEV", required_unless_present = "from")]
    device: Option<String>,

    #[command(flatten)]
    netns: NetnsArgs,

    /// End after so many seconds
    #[arg(long, value_name = "S", value_parser = parse_duration, conflicts_with = "command")]
    duration: Option<Duration>,

    /// Take the packets from a file that --csv wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "name", "duration", "command"])]
    from: Option<PathBuf>,

    /// Write a line for each packet to FILE; compressed if it ends in .zst
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Print the measures as JSON
    #[arg(long)]
    json: bool,

    /// Watch while this command runs; its exit status is passed on
    #[arg(value_name = "CMD", last = true)]
    command: Vec<OsString>,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        match (&self.from, &self.device) {
            (Some(file), _) => self.show(file),
            (None, Some(device)) => self.watch(device),
            (None, None) => unreachable!("clap demands one of both"),
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
    pub fn watch(&self, device: &str) -> Result<ExitCode> {
        let target = self.netns.open()?.enter(|| Target::find(device))??;
        let reasons = Arc::new(Reasons::of_this_kernel());
        let outputs = Arc::new(Mutex::new(Outputs::open(self)?));
        let shared = (Arc::clone(&outputs), Arc::clone(&reasons));
        // Signals are to end the watching in good order from its first moment on.
        let waiting = match self.command.is_empty() {
            true => Waiting::For(self.duration, stop::on_signal()?),
            false => Waiting::While(Signals::hold().context("hold signals back")?),
        };
        let recording = Recording::start(&target, move |event| {
            let (outputs, reasons) = &shared;
            let mut outputs = outputs.lock().unwrap_or_else(PoisonError::into_inner);
            outputs.take(&event, reasons)
        })?;
        let code = match waiting {
            Waiting::For(duration, stop) => {
                say_line!("pillion-lab: watching the queue of {device}; Ctrl-C ends it");
                wait(duration, &stop, &recording);
                ExitCode::SUCCESS
            }
            Waiting::While(mut signals) => self.run(&mut signals)?,
        };
        recording.stop()?;
        let outputs = Arc::into_inner(outputs).context("the recording still runs")?;
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
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || inherited.restore().map_err(io::Error::from));
        }
        match command.args(arguments).spawn() {
            Ok(child) => {
                let child = Pid::from_raw(child.id().cast_signed());
                let ended = signals.pass_to(child, |_| Ok(()));
                ended.context("wait for the command")
            }
            Err(error) => Ok(cannot_run(PROGRAM, program, &error)),
        }
    }
}

/// What ends the watching of the queue.
enum Waiting {
    For(Option<Duration>, Arc<AtomicBool>),
    While(Signals),
}

fn wait(duration: Option<Duration>, stop: &AtomicBool, recording: &Recording) {
    let begun = Instant::now();
    let left = || match duration {
        Some(duration) => duration.saturating_sub(begun.elapsed()),
        None => Duration::MAX,
    };
    while !stop.load(Ordering::Relaxed) && !recording.has_failed() && !left().is_zero() {
        thread::sleep(left().min(Duration::from_millis(50)));
    }
}

impl Args {
    /// Shows the measures of a file of packets. What comes before damage is measured all the same.
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
                    outputs.take(&event, &reasons)?;
                }
                Err(ReadError::Io(error)) => {
                    return Err(anyhow!(error).context(format!("read {name}")));
                }
                Err(error) if number == 0 => return Err(bad(error).into()),
                Err(damage) => {
                    say_line!("pillion-lab: {name}: {damage}");
                    code = ExitCode::from(INCOMPLETE);
                }
            }
        }
        self.print(&outputs.finish(&reasons)?)?;
        Ok(code)
    }
}

/// Where events of the queue go: into the file asked for, and into the measures.
pub struct Outputs {
    csv: Option<RecordsOutput>,
    measures: Measures,
}

impl Outputs {
    pub fn open(args: &Args) -> Result<Self> {
        let csv = args.csv.as_ref();
        let csv = csv.map(|path| RecordsOutput::to("--csv", path));
        Ok(Self {
            csv: csv.transpose()?,
            measures: Measures::default(),
        })
    }

    pub fn take(&mut self, event: &Event, reasons: &Reasons) -> io::Result<()> {
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

/// Number of streams that are shown; JSON has all.
const STREAMS: usize = 20;

/// The measures of a queue as text, for people.
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
        "What became of the packets",
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

fn cells(name: String, account: &Account) -> Vec<String> {
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
    let mut table = Table::new("How long the queue was", columns);
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
    let mut lines = vec![format!("watched for {:.1} s", summary.duration_s)];
    if summary.missed > 0 {
        let missed = number::count(summary.missed);
        lines.push(format!(
            "{missed} packets, or ends of packets, could not be noted"
        ));
    }
    let all = &summary.all;
    if all.unseen > 0 {
        let unseen = number::count(all.unseen);
        lines.push(format!(
            "{unseen} packets had no end: still in the queue, or split by it"
        ));
    }
    if all.unannounced > 0 {
        let sent = number::count(all.unannounced);
        lines.push(format!(
            "{sent} more were sent that had not been seen to arrive"
        ));
    }
    if !all.reasons.is_empty() {
        let reasons = all.reasons.iter();
        // A file of packets may say anything.
        let reasons = reasons
            .map(|(name, count)| format!("{} {}", without_steering(name), number::count(*count)));
        lines.push(format!(
            "why dropped: {}",
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
            "spread of drops over streams (1: all lose alike): {spread}"
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
