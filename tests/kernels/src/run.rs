//! Tests each kernel.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, value_parser};

use crate::architecture::Architecture;
use crate::catalogue::{Catalogue, KernelEntry};
use crate::catalogue::{Environment, choose_environments};
use crate::gate::AcceptedCosts;
use crate::image::Programs;
use crate::image::{self, KernelWork};
use crate::machine::{End, Machine, Processor, choose_processor};
use crate::outcome::{self, Outcome};
use crate::report::{Part, Report};
use crate::stock::{self, StockKernel};
use crate::table::print_outcome;

/// Command line of a run.
#[derive(Debug, Args)]
pub struct Run {
    /// Names from kernels.toml [default: all]
    kernels: Vec<String>,

    /// Wire tests in parallel
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(1..=64))]
    threads: u32,

    /// Run only wire tests with TEXT in their name, one at a time; repeatable
    #[arg(long, value_name = "TEXT")]
    tests: Vec<String>,

    /// Run only streams through environments: all of environments.toml, or environments with TEXT
    /// in their names; repeatable
    #[arg(long, value_name = "TEXT", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "tests")]
    environments: Vec<String>,

    /// Run the environments without pillion, for comparison
    #[arg(long, requires = "environments")]
    plain: bool,

    /// Kernels in parallel [default: one per processor of this machine]
    #[arg(long, value_name = "N")]
    at_a_time: Option<NonZeroUsize>,

    /// Maximum time for each kernel
    #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = value_parser!(u64).range(1..=1440))]
    limit: u64,
}

/// State shared by all kernels of a run.
struct Runner<'a> {
    run: &'a Run,
    catalogue: &'a Catalogue,
    accepted: AcceptedCosts,
    programs: BTreeMap<Architecture, Programs>,
    environments: Vec<Environment>,
    /// Processor for kernels of this host's architecture.
    processor: Processor,
    /// Held while printing a result, so that its lines stay together.
    printing: Mutex<()>,
}

/// Tests the kernels, several in parallel; `false` if one of them failed.
pub fn run(run: &Run) -> Result<bool> {
    let catalogue = Catalogue::load()?;
    let chosen = catalogue.choose(&run.kernels)?;
    let accepted = AcceptedCosts::read()?;
    let environments = choose_environments(&run.environments)?;
    let mut programs = BTreeMap::new();
    for architecture in chosen.iter().map(|entry| entry.architecture) {
        if let Entry::Vacant(missing) = programs.entry(architecture) {
            missing.insert(Programs::build(architecture, environments.is_empty())?);
        }
    }
    let find = |entry: &KernelEntry| stock::find(entry, &|line| println!("{line}"));
    let stocks = chosen.iter().map(|entry| find(entry));
    let stocks = stocks.collect::<Result<Vec<_>>>()?;
    let mut native = chosen.iter().zip(&stocks);
    let native = native.find(|(entry, _)| entry.architecture.is_of_host());
    let processor = match native {
        Some((entry, stock)) => processor_for(entry.architecture, stock)?,
        None => Processor::Emulated,
    };
    let bench = Runner {
        run,
        catalogue: &catalogue,
        accepted,
        programs,
        environments,
        processor,
        printing: Mutex::new(()),
    };
    let kernels = Mutex::new(chosen.iter().zip(&stocks));
    let next = || kernels.lock().expect("next() does not panic").next();
    let work = || -> Result<usize> {
        let mut passed = 0;
        while let Some((entry, stock)) = next() {
            passed += usize::from(bench.passes(entry, stock)?);
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

fn processor_for(architecture: Architecture, stock: &StockKernel) -> Result<Processor> {
    let folder = tempfile::tempdir().context("create a temporary folder")?;
    let file = folder.path().join("image");
    image::write_empty(folder.path(), &file)?;
    let folder = folder.path();
    Ok(choose_processor(architecture, &stock.image, &file, folder))
}

impl Run {
    /// Returns false for a selection of environments or plain TCP, which are not stored as results.
    fn is_complete(&self) -> bool {
        self.environments.iter().all(String::is_empty) && !self.plain
    }
}

impl Runner<'_> {
    fn passes(&self, entry: &KernelEntry, stock: &StockKernel) -> Result<bool> {
        let folder = tempfile::tempdir().context("create a temporary folder")?;
        let file = folder.path().join("image");
        let processor = match entry.architecture.is_of_host() {
            true => self.processor,
            false => Processor::Emulated,
        };
        println!(
            "{}: {} ({}), {}",
            entry.name,
            stock.release,
            stock.version,
            processor.name()
        );
        let work = KernelWork {
            programs: &self.programs[&entry.architecture],
            catalogue: self.catalogue,
            entry,
            stock,
            threads: self.run.threads,
            tests: &self.run.tests,
            environments: &self.environments,
            plain: self.run.plain,
        };
        work.write(folder.path(), &file)?;
        let mut outcome = on_machine(&work, processor, self.run.limit, &file)?;
        if self.run.is_complete() {
            outcome.store()?;
        }
        outcome.judge(&self.accepted);
        let _printing = self.printing.lock();
        print_outcome(&outcome, &self.accepted);
        Ok(outcome.failures.is_empty())
    }
}

fn on_machine(
    work: &KernelWork,
    processor: Processor,
    limit: u64,
    image: &Path,
) -> Result<Outcome> {
    let (entry, stock) = (work.entry, work.stock);
    let environments = !work.environments.is_empty();
    let mut outcome = Outcome::new(entry, stock, processor.name(), work.tests, environments);
    let machine = Machine {
        architecture: entry.architecture,
        processor,
        disabled_features: entry.without.clone(),
        kernel: stock.image.clone(),
        image: image.to_owned(),
        console: outcome::folder()?.join(outcome.file("console")),
        limit: Duration::from_secs(limit * 60),
    };
    let mut wire = [Vec::new(), Vec::new()];
    let started_at = Instant::now();
    let end = machine.run(|report| {
        let after = started_at.elapsed().as_secs();
        match &report {
            Report::Done(part) => println!("{}: {part}: {after} s", entry.name),
            Report::Stream(stream) if environments => {
                println!("{}: {}: {after} s", entry.name, stream.name);
            }
            Report::Failed(Part::Environments, reason) => {
                println!("{}: {reason}: {after} s", entry.name);
            }
            Report::Wire(line) if line.ends_with("FAILED") => println!("{}: {line}", entry.name),
            _ => {}
        }
        outcome.add_report(report, &mut wire);
    })?;
    outcome.read_wire(&wire);
    let console = fs::read(&machine.console).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let log_path = machine.console.display();
    let faults = pillion_tests::faults(&console);
    if !faults.is_empty() {
        let line = format!("kernel fault: {} (console: {log_path})", faults.join("; "));
        outcome.failures.push(line);
    }
    match end {
        End::Finished => {}
        End::ExitedEarly => {
            let emulator_log = fs::read_to_string(machine.emulator_log()).unwrap_or_default();
            let last = emulator_log
                .lines()
                .chain(console.lines())
                .next_back()
                .unwrap_or("nothing");
            let line = format!("the machine exited before its work was done: {last} ({log_path})");
            outcome.failures.push(line);
        }
        End::TimedOut => {
            let line = format!(
                "stopped after {limit} minutes, before its work was done; raise --limit ({log_path})"
            );
            outcome.failures.push(line);
        }
    }
    Ok(outcome)
}
