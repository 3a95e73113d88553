use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use pillion_lab::run::{GroupSummary, Summary};
use pillion_lab::store::{Found, Made, State, Store, StoredRun};
use pillion_report::{Column, Table, number};

use super::list::word;
use crate::print::{print, print_json, print_line};

/// Show what came of an experiment, or of one of its runs
///
/// Of a run: its file, how long messages took from write to read, and whether packets counted at
/// several places agree. Of an experiment: its runs.
#[derive(clap::Args)]
pub struct Args {
    /// What `pillion lab list` names, a run below it, or the folder; an experiment's name alone
    /// stands for the last time that it was run
    #[arg(value_name = "NAME")]
    name: String,

    /// Where runs are kept
    #[arg(long, value_name = "FOLDER", default_value = "pillion-runs")]
    store: PathBuf,

    /// Print a run's summary as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        match Store::new(&self.store).find(&self.name)? {
            Found::Made(made) if self.json => {
                let whole = made.runs.iter().filter(|run| run.state == State::Whole);
                let summaries = whole.map(|run| Ok((&run.name, run.summary()?)));
                let summaries: std::collections::BTreeMap<_, Summary> =
                    summaries.collect::<Result<_>>()?;
                print_json(&summaries)?;
            }
            Found::Made(made) => show_made(&made)?,
            Found::Run(run) if self.json => print_json(&run.summary()?)?,
            Found::Run(run) => show_run(&run)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn show_made(made: &Made) -> Result<()> {
    print_line!("{}", made.path.display())?;
    let columns = [Column::left("run"), Column::left("state")];
    let mut table = Table::new("Runs", columns);
    for run in &made.runs {
        let state = match &run.state {
            State::Broken(why) => format!("broken: {why}"),
            state => word(state).to_owned(),
        };
        table.row([run.name.clone(), state]);
    }
    print_line!("{}", table.to_text(false))
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
    print_line!("\nfrom write to read, in ms")?;
    print_line!("{}", groups(&summary.groups).to_text(false))?;
    print_line!("{}", ways(&summary).to_text(false))?;
    for doubt in &summary.doubts {
        print_line!("doubtful: {doubt}")?;
    }
    Ok(())
}

fn groups(groups: &[GroupSummary]) -> Table {
    let numbers = [
        "streams",
        "connected",
        "messages",
        "sent again",
        "p50",
        "p90",
        "p97",
        "p99",
        "p99.9",
        "max",
    ];
    let columns = std::iter::once(Column::left("group")).chain(numbers.map(Column::right));
    let mut table = Table::new("Groups", columns);
    for group in groups {
        let mut row = vec![
            group.name.clone(),
            number::count(group.streams as u64),
            number::count(group.connected as u64),
            number::count(group.received),
            group
                .retransmissions
                .map_or_else(String::new, number::count),
        ];
        let delivery = group.delivery_us;
        let quantiles = delivery.map(|us| [us.p50, us.p90, us.p97, us.p99, us.p99_9, us.max]);
        match quantiles {
            Some(us) => row.extend(us.map(|us| number::millis(us / 1e3))),
            None => row.extend([(); 6].map(|()| number::millis(None))),
        }
        table.row(row);
    }
    table
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
