//! `pillion-lab list`, `show` and `remove`: the runs of a store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::print::{print, print_json, print_line};
use pillion_lab::analysis::runs::{DELIVERY_LATENCY, Group, MEASURES, groups_table};
use pillion_lab::run::{Summary, WayCounts};
use pillion_lab::store::{Found, Made, State, Store, StoredRun};
use pillion_stats::report::{Column, Table, number};
use serde::Serialize;

/// Where runs are kept.
#[derive(clap::Args)]
pub struct StoreArgs {
    /// Where runs are kept
    #[arg(long, value_name = "FOLDER", default_value = "pillion-runs")]
    store: PathBuf,
}

impl StoreArgs {
    pub fn open(&self) -> Store {
        Store::new(&self.store)
    }

    pub fn folder(&self) -> &Path {
        &self.store
    }
}

/// List the experiments that were run
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Print JSON, with every run
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    path: PathBuf,
    runs: Vec<ListedRun<'a>>,
}

#[derive(Serialize)]
struct ListedRun<'a> {
    name: &'a str,
    path: PathBuf,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

impl ListArgs {
    pub fn execute(self) -> Result<ExitCode> {
        let all = self.store.open().list()?;
        if self.json {
            let all: Vec<_> = all.iter().map(listed).collect();
            print_json(&all)?;
        } else if all.is_empty() {
            print_line!("no runs in {}", self.store.folder().display())?;
        } else {
            let columns = [
                Column::left("experiment"),
                Column::right("runs"),
                Column::right("whole"),
            ];
            let mut table = Table::new("Experiments", columns);
            for made in &all {
                let whole = made.runs.iter().filter(|run| run.state == State::Whole);
                table.row([
                    made.name.clone(),
                    made.runs.len().to_string(),
                    whole.count().to_string(),
                ]);
            }
            print_line!("{}", table.to_text())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn listed(made: &Made) -> Listed<'_> {
    let runs = made.runs.iter().map(|run| ListedRun {
        name: &run.name,
        path: run.path.clone(),
        state: word(&run.state),
        why: match &run.state {
            State::Broken(why) => Some(why),
            State::Whole | State::Part => None,
        },
    });
    Listed {
        name: &made.name,
        path: made.path.clone(),
        runs: runs.collect(),
    }
}

/// A run's state in one word.
pub fn word(state: &State) -> &'static str {
    match state {
        State::Whole => "whole",
        State::Broken(_) => "broken",
        State::Part => "unfinished",
    }
}

/// Show what came of an experiment, or of one of its runs
///
/// Of an experiment: a line for each group of each run, with delivery latency (from one
/// application's write to the other one's read), what never came, retransmissions, loss, goodput,
/// redundant share, hidden losses and reactions. Of a run also its file, and whether packets
/// counted at several places agree. docs/lab.md explains each measure; `pillion-lab compare` sets
/// runs side by side.
#[derive(clap::Args)]
pub struct ShowArgs {
    /// An experiment as `pillion-lab list` prints it, one of its runs, or a folder; the name without
    /// a time is the last time that it was run
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    store: StoreArgs,

    /// Print each run's summary and measures as JSON
    #[arg(long)]
    json: bool,
}

/// A run as JSON.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    summary: Summary,
    /// The run's measures, by group and by the measure's name.
    measures: BTreeMap<String, BTreeMap<&'static str, f64>>,
}

impl ShowArgs {
    pub fn execute(self) -> Result<ExitCode> {
        match self.store.open().find(&self.name)? {
            Found::Made(made) if self.json => {
                let whole = made.runs.iter().filter(|run| run.state == State::Whole);
                let all = whole.map(|run| Ok((&run.name, shown(run)?)));
                print_json(&all.collect::<Result<BTreeMap<_, _>>>()?)?;
            }
            Found::Made(made) => show_made(&made)?,
            Found::Run(run) if self.json => print_json(&shown(&run)?)?,
            Found::Run(run) => show_run(&run)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn shown(run: &StoredRun) -> Result<Shown> {
    let groups = run.groups()?.into_iter().map(|group| {
        let values = MEASURES.iter();
        let values = values.filter_map(|measure| Some((measure.name, group.value(measure)?)));
        let values = values.collect();
        (group.name, values)
    });
    Ok(Shown {
        summary: run.summary()?,
        measures: groups.collect(),
    })
}

fn show_made(made: &Made) -> Result<()> {
    print_line!("{}", made.path.display())?;
    let mut groups: Vec<(Vec<String>, Group)> = Vec::new();
    let mut doubtful = Vec::new();
    for run in made.runs.iter().filter(|run| run.state == State::Whole) {
        let of_run = run.groups()?.into_iter();
        groups.extend(of_run.map(|group| (vec![run.name.clone(), group.name.clone()], group)));
        let doubts = run.summary()?.doubts.into_iter();
        doubtful.extend(doubts.map(|doubt| format!("{}: doubtful: {doubt}", run.name)));
    }
    if !groups.is_empty() {
        let columns = [Column::left("run"), Column::left("group")];
        print_table(columns, &groups)?;
    }
    for (names, group) in &groups {
        print_survivors(&names.join(" "), group)?;
    }
    for line in doubtful {
        print_line!("{line}")?;
    }
    for run in &made.runs {
        match &run.state {
            State::Whole => {}
            State::Broken(why) => print_line!("{}: broken: {why}", run.name)?,
            state @ State::Part => print_line!("{}: {}", run.name, word(state))?,
        }
    }
    Ok(())
}

fn print_table<const N: usize>(
    columns: [Column; N],
    groups: &[(Vec<String>, Group)],
) -> Result<()> {
    print_line!("\ndelivery latency (p50 to max): {DELIVERY_LATENCY}")?;
    let rows = groups.iter().map(|(names, group)| (names.clone(), group));
    print_line!("{}", groups_table(columns, rows).to_text())?;
    Ok(())
}

fn print_survivors(name: &str, group: &Group) -> Result<()> {
    match group.totals().survivors() {
        Some(survivors) => print_line!("{name}: {survivors}"),
        None => Ok(()),
    }
}

fn show_run(run: &StoredRun) -> Result<()> {
    print_line!("{}", run.path.display())?;
    match &run.state {
        State::Whole => {}
        State::Broken(why) => print_line!("broken: {why}")?,
        State::Part => print_line!("unfinished: at work still, or killed")?,
    }
    print_line!("")?;
    print(&run.text()?)?;
    if run.state != State::Whole {
        return Ok(());
    }
    let summary = run.summary()?;
    let columns = [
        Column::left("group"),
        Column::right("streams"),
        Column::right("connected"),
        Column::right("sent"),
        Column::right("received"),
    ];
    let groups = summary.groups.iter().zip(run.groups()?);
    let groups: Vec<_> = groups
        .map(|(told, group)| {
            let (streams, connected) = (told.streams as u64, told.connected as u64);
            let counts = [streams, connected, told.sent, told.received].map(number::count);
            let names = std::iter::once(told.name.clone()).chain(counts);
            (names.collect(), group)
        })
        .collect();
    print_table(columns, &groups)?;
    for (_, group) in &groups {
        print_survivors(&group.name, group)?;
    }
    print_line!("{}", ways(&summary).to_text())?;
    print_jitter("to the receiver", &summary.forward)?;
    print_jitter("back", &summary.backward)?;
    for doubt in &summary.doubts {
        print_line!("doubtful: {doubt}")?;
    }
    Ok(())
}

fn print_jitter(way: &str, counts: &WayCounts) -> Result<()> {
    let Some(jitter) = counts.jitter else {
        return Ok(());
    };
    let (mean, sd) = (jitter.mean_us as f64 / 1e3, jitter.sd_us as f64 / 1e3);
    print_line!("delay {way}: {mean:+.2} ms beside the one set, standard deviation {sd:.2} ms")
}

fn ways(summary: &Summary) -> Table {
    let columns = [
        Column::left("IP packets"),
        Column::right("to the receiver"),
        Column::right("back"),
    ];
    let mut table = Table::new("Packets", columns);
    let ways = [&summary.forward, &summary.backward];
    let mut row = |name: &str, counts: [Option<u64>; 2]| {
        let [forward, backward] = counts.map(|count| count.map_or_else(String::new, number::count));
        table.row([name.to_owned(), forward, backward]);
    };
    row("in the trace before", ways.map(|way| way.trace_before));
    row(
        "dropped by the queue",
        ways.map(|way| way.queue_passed.map(|_| way.queue_dropped)),
    );
    row("lost in the emulator", ways.map(|way| Some(way.lost)));
    row("delivered", ways.map(|way| Some(way.delivered)));
    row("in the trace behind", ways.map(|way| way.trace_behind));
    table
}

/// Remove experiments that were run, or single runs, from the disk
///
/// All names are looked up before the first is removed.
#[derive(clap::Args)]
pub struct RemoveArgs {
    /// An experiment as `pillion-lab list` prints it, or one of its runs; the name without a time is
    /// the last time that it was run
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    #[command(flatten)]
    store: StoreArgs,
}

impl RemoveArgs {
    pub fn execute(self) -> Result<ExitCode> {
        let store = self.store.open();
        let found = self.names.iter().map(|name| store.find(name));
        let found: Vec<Found> = found.collect::<Result<_, _>>()?;
        for found in found {
            store.remove(&found)?;
            print_line!("removed {}", found.path().display())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
