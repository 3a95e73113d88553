//! Runs the work on each kernel.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, value_parser};

use crate::catalogue::{Catalogue, Wanted};
use crate::catalogue::{Environment, choose_environments};
use crate::gate::Accepted;
use crate::image::Programs;
use crate::image::{self, Work};
use crate::machine::{End, Machine, Processor, choose_processor};
use crate::outcome::{self, Outcome};
use crate::report::{Part, Report};
use crate::stock::{self, Stock};
use crate::table::print_outcome;

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

    /// Run streams through environments, and nothing else: all of environments.toml, or those with
    /// TEXT in their names; repeat for more
    #[arg(long, value_name = "TEXT", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "tests")]
    environments: Vec<String>,

    /// Run the environments' streams without pillion, for comparison
    #[arg(long, requires = "environments")]
    plain: bool,

    /// Kernels at a time [default: one for each processor of this machine]
    #[arg(long, value_name = "N")]
    at_a_time: Option<NonZeroUsize>,

    /// The most that one kernel may take
    #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = value_parser!(u64).range(1..=1440))]
    limit: u64,
}

/// What the work on each kernel is done with.
struct Bench<'a> {
    run: &'a Run,
    catalogue: &'a Catalogue,
    accepted: Accepted,
    programs: Programs,
    environments: Vec<Environment>,
    processor: Processor,
    /// Held by whom prints what came of a kernel, so that it stays together.
    printing: Mutex<()>,
}

/// Runs the work on the kernels, several at a time; `false` if one of them failed.
pub fn run(run: &Run) -> Result<bool> {
    let catalogue = Catalogue::load()?;
    let chosen = catalogue.choose(&run.kernels)?;
    let accepted = Accepted::read()?;
    let environments = choose_environments(&run.environments)?;
    let programs = Programs::build(environments.is_empty())?;
    let find =
        |wanted: &Wanted| stock::find(wanted, &catalogue.package, &|line| println!("{line}"));
    let stocks = chosen.iter().map(|wanted| find(wanted));
    let stocks = stocks.collect::<Result<Vec<_>>>()?;
    let Some(first) = stocks.first() else {
        bail!("kernels.toml names no kernel");
    };
    let bench = Bench {
        run,
        catalogue: &catalogue,
        accepted,
        programs,
        environments,
        processor: processor_for(first)?,
        printing: Mutex::new(()),
    };
    let kernels = Mutex::new(chosen.iter().zip(&stocks));
    let next = || kernels.lock().expect("nobody panics in next()").next();
    let work = || -> Result<usize> {
        let mut passed = 0;
        while let Some((wanted, stock)) = next() {
            passed += usize::from(bench.passes(wanted, stock)?);
        }
        Ok(passed)
    };
    let workers = run
        .at_a_time
        .map_or_else(thread::available_parallelism, Ok)?;
    let passed = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers.get()).map(|_| scope.spawn(work)).collect();
        let ends = workers.into_iter().map(|it| it.join().expect("no panic"));
        ends.sum::<Result<usize>>()
    })?;
    println!("kernels: {passed} passed, {} failed", chosen.len() - passed);
    Ok(passed == chosen.len())
}

fn processor_for(stock: &Stock) -> Result<Processor> {
    let folder = tempfile::tempdir().context("make a temporary folder")?;
    let file = folder.path().join("image");
    image::write_empty(folder.path(), &file)?;
    Ok(choose_processor(&stock.image, &file, folder.path()))
}

impl Run {
    /// Some environments or plain TCP are no result of a kernel.
    fn is_whole(&self) -> bool {
        self.environments.iter().all(String::is_empty) && !self.plain
    }
}

impl Bench<'_> {
    fn passes(&self, wanted: &Wanted, stock: &Stock) -> Result<bool> {
        let folder = tempfile::tempdir().context("make a temporary folder")?;
        let file = folder.path().join("image");
        println!(
            "{}: {} ({}), {}",
            wanted.name,
            stock.release,
            stock.version,
            self.processor.name()
        );
        let work = Work {
            programs: &self.programs,
            catalogue: self.catalogue,
            wanted,
            stock,
            threads: self.run.threads,
            tests: &self.run.tests,
            environments: &self.environments,
            plain: self.run.plain,
        };
        work.write(folder.path(), &file)?;
        let mut outcome = on_machine(&work, self.processor, self.run.limit, &file)?;
        if self.run.is_whole() {
            outcome.store()?;
        }
        outcome.judge(&self.accepted);
        let _printing = self.printing.lock();
        print_outcome(&outcome, &self.accepted);
        Ok(outcome.failures.is_empty())
    }
}

fn on_machine(work: &Work, processor: Processor, limit: u64, image: &Path) -> Result<Outcome> {
    let (wanted, stock) = (work.wanted, work.stock);
    let environments = !work.environments.is_empty();
    let mut outcome = Outcome::begin(wanted, stock, processor.name(), work.tests, environments);
    let machine = Machine {
        processor,
        without: wanted.without.clone(),
        kernel: stock.image.clone(),
        image: image.to_owned(),
        console: outcome::folder()?.join(outcome.file("console")),
        limit: Duration::from_secs(limit * 60),
    };
    let mut wire = [Vec::new(), Vec::new()];
    let begun = Instant::now();
    let end = machine.run(|report| {
        let after = begun.elapsed().as_secs();
        match &report {
            Report::Done(part) => println!("{}: {part}: {after} s", wanted.name),
            Report::Stream(stream) if environments => {
                println!("{}: {}: {after} s", wanted.name, stream.name);
            }
            Report::Failed(Part::Environments, reason) => {
                println!("{}: {reason}: {after} s", wanted.name);
            }
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
