//! Runs the work on one kernel after the other.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::catalogue::Catalogue;
use crate::console;
use crate::gate::Accepted;
use crate::image::{self, Work};
use crate::machine::{End, Machine, Processor, choose_processor};
use crate::outcome::{self, Outcome};
use crate::programs::Programs;
use crate::report::Report;
use crate::stock;
use crate::tell;

/// More than any part should take, on a host that has other work to do.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// Runs those named, or all; `false` if one of them failed. Of the tests of the wire, those whose
/// names contain one of `tests`, or all.
pub fn run(names: &[String], threads: u32, tests: &[String]) -> Result<bool> {
    let catalogue = Catalogue::load()?;
    let chosen = catalogue.choose(names)?;
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
            threads,
            tests,
        };
        work.write(folder.path(), &file)?;
        let mut outcome = on_machine(&work, processor, &file)?;
        let objections = accepted.objections(&wanted.name, &outcome.costs);
        outcome.failures.extend(objections);
        outcome.store()?;
        tell::outcome(&outcome, &accepted);
        failed += usize::from(!outcome.failures.is_empty());
    }
    println!("kernels: {} passed, {failed} failed", chosen.len() - failed);
    Ok(failed == 0)
}

fn on_machine(work: &Work, processor: Processor, image: &Path) -> Result<Outcome> {
    let (wanted, stock) = (work.wanted, work.stock);
    let machine = Machine {
        processor,
        without: wanted.without.clone(),
        kernel: stock.image.clone(),
        image: image.to_owned(),
        console: outcome::folder()?.join(format!("{}.console", wanted.name)),
        limit: LIMIT,
    };
    let mut outcome = Outcome::begin(wanted, stock, processor.name(), work.tests);
    let mut wire = Vec::new();
    let begun = Instant::now();
    let end = machine.run(|report| {
        if let Report::Done(part, _) = &report {
            println!(
                "{}: {part}: {:.0} s",
                wanted.name,
                begun.elapsed().as_secs_f64()
            );
        }
        outcome.take(report, &mut wire);
    })?;
    outcome.read_wire(&wire);
    let console = fs::read(&machine.console).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let kept = machine.console.display();
    let faults = console::faults(&console);
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
            let minutes = LIMIT.as_secs() / 60;
            let line = format!("stopped after {minutes} minutes, with its work not done ({kept})");
            outcome.failures.push(line);
        }
    }
    Ok(outcome)
}
