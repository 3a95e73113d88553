//! `pillion-lab list`, `show` and `remove`: stored runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::print::{print, print_json, print_line};
use pillion_lab::analysis::runs::{DELIVERY_LATENCY, Group, MEASURES, groups_table};
use pillion_lab::run::{PathCounts, Summary};
use pillion_lab::store::{Batch, RunState, Store, StoreEntry, StoredRun};
use pillion_stats::report::{Column, Table, number};
use serde::Serialize;

/// Option for the folder of runs.
#[derive(clap::Args)]
pub struct StoreArgs {
    /// Folder of stored runs
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

/// List stored experiments
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Print JSON, with every run
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct BatchJson<'a> {
    name: &'a str,
    path: PathBuf,
    runs: Vec<ListedRunJson<'a>>,
}

#[derive(Serialize)]
struct ListedRunJson<'a> {
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
            let all: Vec<_> = all.iter().map(batch_json).collect();
            print_json(&all)?;
        } else if all.is_empty() {
            print_line!("no runs in {}", self.store.folder().display())?;
        } else {
            let columns = [
                Column::left("experiment"),
                Column::right("runs"),
                Column::right("complete"),
            ];
            let mut table = Table::new("Experiments", columns);
            for batch in &all {
                let complete = batch
                    .runs
                    .iter()
                    .filter(|run| run.state == RunState::Complete);
                table.row([
                    batch.name.clone(),
                    batch.runs.len().to_string(),
                    complete.count().to_string(),
                ]);
            }
            print_line!("{}", table.to_text())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn batch_json(batch: &Batch) -> BatchJson<'_> {
    let runs = batch.runs.iter().map(|run| ListedRunJson {
        name: &run.name,
        path: run.path.clone(),
        state: state_name(&run.state),
        why: match &run.state {
            RunState::Failed(why) => Some(why),
            RunState::Complete | RunState::Incomplete => None,
        },
    });
    BatchJson {
        name: &batch.name,
        path: batch.path.clone(),
        runs: runs.collect(),
    }
}

/// Returns a run's state as a word.
pub fn state_name(state: &RunState) -> &'static str {
    match state {
        RunState::Complete => "complete",
        RunState::Failed(_) => "failed",
        RunState::Incomplete => "incomplete",
    }
}

/// Show the results of an experiment or of one run
///
/// For an experiment, prints a line for each group of each run: delivery latency (from one
/// application's write to the other one's read), missing messages, retransmissions, loss, goodput,
/// redundant share, hidden losses and reactions. For a run, also prints its file, and whether
/// packet counts of different points agree. docs/lab/overview.md describes each measure; `pillion-lab
/// compare` compares runs.
#[derive(clap::Args)]
pub struct ShowArgs {
    /// Experiment from `pillion-lab list`, one of its runs, or a folder; without a time, the latest
    /// one
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    store: StoreArgs,

    /// Print each run's summary and measures as JSON
    #[arg(long)]
    json: bool,
}

/// Run as JSON.
#[derive(Serialize)]
struct RunJson {
    #[serde(flatten)]
    summary: Summary,
    /// Measures by group and by name.
    measures: BTreeMap<String, BTreeMap<&'static str, f64>>,
}

impl ShowArgs {
    pub fn execute(self) -> Result<ExitCode> {
        match self.store.open().find(&self.name)? {
            StoreEntry::Batch(batch) if self.json => {
                let complete = batch
                    .runs
                    .iter()
                    .filter(|run| run.state == RunState::Complete);
                let all = complete.map(|run| Ok((&run.name, run_json(run)?)));
                print_json(&all.collect::<Result<BTreeMap<_, _>>>()?)?;
            }
            StoreEntry::Batch(batch) => show_batch(&batch)?,
            StoreEntry::Run(run) if self.json => print_json(&run_json(&run)?)?,
            StoreEntry::Run(run) => show_run(&run)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn run_json(run: &StoredRun) -> Result<RunJson> {
    let groups = run.groups()?.into_iter().map(|group| {
        let values = MEASURES.iter();
        let values = values.filter_map(|measure| Some((measure.name, group.value(measure)?)));
        let values = values.collect();
        (group.name, values)
    });
    Ok(RunJson {
        summary: run.summary()?,
        measures: groups.collect(),
    })
}

fn show_batch(batch: &Batch) -> Result<()> {
    print_line!("{}", batch.path.display())?;
    let mut groups: Vec<(Vec<String>, Group)> = Vec::new();
    let mut warnings = Vec::new();
    for run in batch
        .runs
        .iter()
        .filter(|run| run.state == RunState::Complete)
    {
        let of_run = run.groups()?.into_iter();
        groups.extend(of_run.map(|group| (vec![run.name.clone(), group.name.clone()], group)));
        let of_run = run.summary()?.warnings.into_iter();
        warnings.extend(of_run.map(|warning| format!("{}: warning: {warning}", run.name)));
    }
    if !groups.is_empty() {
        let columns = [Column::left("run"), Column::left("group")];
        print_table(columns, &groups)?;
    }
    for (names, group) in &groups {
        print_missing_note(&names.join(" "), group)?;
    }
    for line in warnings {
        print_line!("{line}")?;
    }
    for run in &batch.runs {
        match &run.state {
            RunState::Complete => {}
            RunState::Failed(why) => print_line!("{}: failed: {why}", run.name)?,
            state @ RunState::Incomplete => print_line!("{}: {}", run.name, state_name(state))?,
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

fn print_missing_note(name: &str, group: &Group) -> Result<()> {
    match group.totals().missing_note() {
        Some(missing_note) => print_line!("{name}: {missing_note}"),
        None => Ok(()),
    }
}

fn show_run(run: &StoredRun) -> Result<()> {
    print_line!("{}", run.path.display())?;
    match &run.state {
        RunState::Complete => {}
        RunState::Failed(why) => print_line!("failed: {why}")?,
        RunState::Incomplete => print_line!("incomplete: still running, or killed")?,
    }
    print_line!("")?;
    print(&run.text()?)?;
    if run.state != RunState::Complete {
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
        .map(|(counts_of, group)| {
            let (streams, connected) = (counts_of.streams as u64, counts_of.connected as u64);
            let counts =
                [streams, connected, counts_of.sent, counts_of.received].map(number::count);
            let names = std::iter::once(counts_of.name.clone()).chain(counts);
            (names.collect(), group)
        })
        .collect();
    print_table(columns, &groups)?;
    for (_, group) in &groups {
        print_missing_note(&group.name, group)?;
    }
    print_line!("{}", direction_counts(&summary).to_text())?;
    print_jitter("to the receiver", &summary.forward)?;
    print_jitter("back", &summary.backward)?;
    for warning in &summary.warnings {
        print_line!("warning: {warning}")?;
    }
    Ok(())
}

fn print_jitter(way: &str, counts: &PathCounts) -> Result<()> {
    let Some(jitter) = counts.jitter else {
        return Ok(());
    };
    let (mean, sd) = (jitter.mean_us as f64 / 1e3, jitter.sd_us as f64 / 1e3);
    print_line!("delay {way}: {mean:+.2} ms relative to the setting, standard deviation {sd:.2} ms")
}

fn direction_counts(summary: &Summary) -> Table {
    let columns = [
        Column::left("IP packets"),
        Column::right("to the receiver"),
        Column::right("back"),
    ];
    let mut table = Table::new("Packets", columns);
    let direction_counts = [&summary.forward, &summary.backward];
    let mut row = |name: &str, counts: [Option<u64>; 2]| {
        let [forward, backward] = counts.map(|count| count.map_or_else(String::new, number::count));
        table.row([name.to_owned(), forward, backward]);
    };
    row(
        "in the sender's trace",
        direction_counts.map(|way| way.trace_before),
    );
    row(
        "dropped by the queue",
        direction_counts.map(|way| way.queue_passed.map(|_| way.queue_dropped)),
    );
    row(
        "lost in the emulator",
        direction_counts.map(|way| Some(way.lost)),
    );
    row("delivered", direction_counts.map(|way| Some(way.delivered)));
    row(
        "in the receiver's trace",
        direction_counts.map(|way| way.trace_after),
    );
    table
}

/// Delete experiments or single runs
///
/// All names are resolved before the first run is deleted.
#[derive(clap::Args)]
pub struct RemoveArgs {
    /// Experiment from `pillion-lab list`, or one of its runs; without a time, the latest one
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    #[command(flatten)]
    store: StoreArgs,
}

impl RemoveArgs {
    pub fn execute(self) -> Result<ExitCode> {
        let store = self.store.open();
        let found = self.names.iter().map(|name| store.find(name));
        let found: Vec<StoreEntry> = found.collect::<Result<_, _>>()?;
        for found in found {
            store.remove(&found)?;
            print_line!("removed {}", found.path().display())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
