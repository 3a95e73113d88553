//! Runs the work on one kernel after the other.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, value_parser};

use crate::catalogue::Catalogue;
use crate::gate::Accepted;
use crate::image::{self, Work};
use crate::machine::{End, Machine, Processor, choose_processor};
use crate::outcome::{self, Outcome};
use crate::programs::Programs;
use crate::report::Report;
use crate::stock;
use crate::tell;

/// What is to be run.
#[derive(Debug, Args)]
pub struct Run {
    /// Names from kernels.toml [default: all]
    kernels: Vec<String>,

    /// Tests of the wire at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(1..=64))]
    threads: u32,

    /// Of the tests of the wire, those with TEXT in their name, one at a time; repeat for more
    #[arg(long, value_name = "TEXT")]
    tests: Vec<String>,

    /// The most that one kernel may take
    #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = value_parser!(u64).range(1..=1440))]
    limit: u64,
}

/// Runs the work on the kernels; `false` if one of them failed.
pub fn run(run: &Run) -> Result<bool> {
    let catalogue = Catalogue::load()?;
    let chosen = catalogue.choose(&run.kernels)?;
    let accepted = Accepted::read()?;
    let programs = Programs::build()?;
    let mut processor = None;
    let mut failed = 0;
    for wanted in &chosen {
        let stock = stock::find(wanted, &catalogue.package, &|line| println!("{line}"))?;
        let folder = tempfile::tempdir().context("make a temporary folder")?;
        let file = folder.path().join("image");
        let processor = match processor {
            Some(known) => known,
            None => {
                image::write_empty(folder.path(), &file)?;
                *processor.insert(choose_processor(&stock.image, &file, folder.path()))
            }
        };
        let (release, version) = (&stock.release, &stock.version);
        println!(
            "{}: {release} ({version}), {}",
            wanted.name,
            processor.name()
        );
        let work = Work {
            programs: &programs,
            catalogue: &catalogue,
            wanted,
            stock: &stock,
            threads: run.threads,
            tests: &run.tests,
        };
        work.write(folder.path(), &file)?;
        let mut outcome = on_machine(&work, processor, run.limit, &file)?;
        let objections = accepted.objections(&wanted.name, &outcome.costs);
        outcome.failures.extend(objections);
        outcome.store()?;
        tell::outcome(&outcome, &accepted);
        failed += usize::from(!outcome.failures.is_empty());
    }
    println!("kernels: {} passed, {failed} failed", chosen.len() - failed);
    Ok(failed == 0)
}

fn on_machine(work: &Work, processor: Processor, limit: u64, image: &Path) -> Result<Outcome> {
    let (wanted, stock) = (work.wanted, work.stock);
    let machine = Machine {
        processor,
        without: wanted.without.clone(),
        kernel: stock.image.clone(),
        image: image.to_owned(),
        console: outcome::folder()?.join(format!("{}.console", wanted.name)),
        limit: Duration::from_secs(limit * 60),
    };
    let mut outcome = Outcome::begin(wanted, stock, processor.name(), work.tests);
    let mut wire = [Vec::new(), Vec::new()];
    let begun = Instant::now();
    let end = machine.run(|report| {
        let after = begun.elapsed().as_secs();
        match &report {
            Report::Done(part) => println!("{}: {part}: {after} s", wanted.name),
            Report::Wire(line) if line.ends_with("FAILED") => println!("{}: {line}", wanted.name),
            _ => {}
        }
        outcome.take(report, &mut wire);
    })?;
    outcome.read_wire(&wire);
    let console = fs::read(&machine.console).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let kept = machine.console.display();
    let faults = pillion_tests::faults(&console);
    if !faults.is_empty() {
        let line = format!("the kernel says: {} (all of it: {kept})", faults.join("; "));
        outcome.failures.push(line);
    }
    match end {
        End::Done => {}
        End::Early => {
            let said = fs::read_to_string(machine.said()).unwrap_or_default();
            let last = said
                .lines()
                .chain(console.lines())
                .next_back()
                .unwrap_or("nothing");
            let line = format!("the machine ended before its work was done: {last} ({kept})");
            outcome.failures.push(line);
        }
        End::Late => {
            let line = format!("stopped after {limit} minutes, with its work not done ({kept})");
            outcome.failures.push(line);
        }
    }
    Ok(outcome)
}
