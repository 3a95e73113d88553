//! Does the bundler know what its bundles hid? Losses found, missed and falsely found, for
//! receivers that acknowledge in different ways, by the rule that is learnt (`auto`) and by
//! the published one (`ack`); all paths of one loss rate at the same time. The truth comes
//! from the segments seen on both sides of each path. As root:
//! `cargo bench -p pillion --bench detection`; after `--`, `--help` shows how to make it
//! shorter.

mod args;
mod how;
mod measure;
mod receiver;
mod sender;
mod trust;

use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use pillion_bundler::LossRule;
use pillion_report::{Column, Table, number};

use args::Args;
use how::{how_taken, may_measure};
use measure::{Case, Outcome, measure};
use receiver::Receiver;
use trust::conclude;

const RULES: [(&str, LossRule); 2] = [("`auto`", LossRule::Auto), ("`ack`", LossRule::Ack)];

const COLUMNS: [&str; 9] = [
    "segments",
    "lost by the path",
    "of these new data",
    "repaired by bundles",
    "found",
    "missed",
    "false",
    "writes late p99",
    "path late p99",
];

/// The port of the first path; the others' follow.
const FIRST_PORT: u16 = 7000;
/// Seconds that a run takes beside those of sending: loading the programs, and the last bytes.
const OVERHEAD_S: f64 = 10.0;

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if !may_measure(args.bench) {
        return Ok(ExitCode::SUCCESS);
    }
    let limit = match args.max_packets {
        0 => "no limit to a bundle".to_owned(),
        n => format!("at most {n} previous segments in a bundle"),
    };
    let how = how_taken(&format!(
        "{} streams of 120 B each {} ms on each path, RTT {} ms, {limit}, {} s, seed {}",
        args.streams, args.itt, args.rtt, args.seconds, args.seed
    ));
    let expected = (args.losses.len() as f64 * (args.seconds + OVERHEAD_S)) as u64;
    eprintln!("about {} s in all", number::count(expected));
    println!("{how}. Segments; lateness in milliseconds.\n");
    let names = [Column::left("receiver"), Column::left("rule")];
    let columns = names.into_iter().chain(COLUMNS.map(Column::right));
    let mut table = Table::new("", columns);
    let mut untrusted = 0;
    for loss in &args.losses {
        let percent = number::percent(loss / 100.0);
        eprintln!("loss {percent}");
        table.section(format!("{percent} loss"));
        for (names, outcome) in at_loss(&args, loss / 100.0)? {
            untrusted += usize::from(outcome.lateness.is_too_large());
            table.row(row(names, &outcome));
        }
    }
    println!("{}", table.to_markdown());
    Ok(conclude(untrusted))
}

/// Measures all receivers with all rules, at a loss rate from 0 to 1.
fn at_loss(args: &Args, loss: f64) -> Result<Vec<([&'static str; 2], Outcome)>> {
    let mut running = Vec::new();
    for receiver in Receiver::ALL {
        for (name, rule) in RULES {
            let case = Case {
                receiver,
                rule,
                loss,
                port: FIRST_PORT + running.len() as u16,
            };
            let args = args.clone();
            let worker = thread::spawn(move || measure(&args, case));
            running.push(([receiver.name(), name], worker));
        }
    }
    let finish = |(names, worker): ([&'static str; 2], thread::JoinHandle<Result<Outcome>>)| {
        let outcome = worker.join().map_err(|_| anyhow!("its thread panicked"))?;
        let outcome = outcome.with_context(|| names.join(", "))?;
        Ok((names, outcome))
    };
    running.into_iter().map(finish).collect()
}

fn row(names: [&str; 2], outcome: &Outcome) -> Vec<String> {
    let [send, path] = outcome.lateness.cells();
    if outcome.lateness.is_too_large() {
        let rule = format!("{}: too late, by {send} and {path} ms", names[1]);
        return vec![names[0].to_owned(), rule];
    }
    let counts = [
        outcome.truth.segments,
        outcome.path_lost,
        outcome.truth.lost,
        outcome.truth.repaired,
        outcome.found,
        outcome.missed,
        outcome.falsely,
    ];
    let words = names.map(String::from).into_iter();
    words
        .chain(counts.map(number::count))
        .chain([send, path])
        .collect()
}
