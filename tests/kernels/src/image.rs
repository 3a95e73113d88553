//! Root file system that a kernel starts from.

use std::env;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use pillion_lab::engine::Image;
use serde_json::Value;

use crate::architecture::Architecture;
use crate::catalogue::Environment;
use crate::catalogue::{Catalogue, KernelEntry};
use crate::report::{JOB_FILE, Job};
use crate::stock::{Modules, StockKernel};

/// Everything needed to test one kernel.
pub struct KernelWork<'a> {
    pub programs: &'a Programs,
    pub catalogue: &'a Catalogue,
    pub entry: &'a KernelEntry,
    pub stock: &'a StockKernel,
    /// Number of wire tests in parallel.
    pub threads: u32,
    /// Parts of test names; empty for all tests.
    pub tests: &'a [String],
    /// Environments to run instead of all other work; empty to run that.
    pub environments: &'a [Environment],
    /// Runs the environments without pillion.
    pub plain: bool,
}

impl KernelWork<'_> {
    /// Writes the image to a file; `folder` holds its parts meanwhile.
    pub fn write(&self, folder: &Path, file: &Path) -> Result<()> {
        let init = &self.programs.init;
        let mut image = match self.entry.architecture.is_of_host() {
            true => Image::new(init)?,
            false => Image::foreign(init, &self.stock.root)?,
        };
        image.add_program(&self.programs.pillion)?;
        image.add_program(&self.programs.lab)?;
        let wire = self.programs.wire.as_deref();
        let wire = wire.map(|program| image.add_program(program)).transpose()?;
        let mut job = Job {
            wire,
            wire_runs: self.wire_runs(),
            environments: self.environments.to_vec(),
            plain: self.plain,
            ..Job::default()
        };
        let mut entry = self.catalogue.modules.clone();
        for environment in self.environments {
            image.add_programs(&environment.programs)?;
            entry.extend_from_slice(&environment.modules);
        }
        let modules = Modules::of(&self.stock.modules)?;
        for module in modules.with_dependencies(&entry)? {
            let source = folder.join(&module.name);
            fs::write(&source, &module.content)?;
            let path = format!("/lib/modules/{}.ko", module.name);
            image.add_file(&source, &path)?;
            job.modules.push(path);
        }
        write(image, &job, folder, file)
    }

    /// Returns the arguments of the parallel run and of the timed run. If tests were requested by
    /// name, only these run, one at a time.
    fn wire_runs(&self) -> Vec<Vec<String>> {
        let skipped = self.entry.skipped.iter().map(|it| it.tests.as_str());
        let skip = |tests: &str| ["--skip".to_owned(), tests.to_owned()];
        let one_at_a_time = |names: &[String]| {
            let mut arguments = vec!["--test-threads=1".to_owned()];
            arguments.extend(names.iter().cloned());
            arguments.extend(skipped.clone().flat_map(skip));
            arguments
        };
        if !self.tests.is_empty() {
            return vec![one_at_a_time(self.tests)];
        }
        let mut in_parallel = vec![format!("--test-threads={}", self.threads)];
        let timed = self.catalogue.timed.iter().map(String::as_str);
        in_parallel.extend(timed.chain(skipped.clone()).flat_map(skip));
        vec![in_parallel, one_at_a_time(&self.catalogue.timed)]
    }
}

/// Writes an image that only shows that the kernel boots.
pub fn write_empty(folder: &Path, file: &Path) -> Result<()> {
    let image = Image::new(&env::current_exe()?)?;
    write(image, &Job::default(), folder, file)
}

fn write(mut image: Image, job: &Job, folder: &Path, file: &Path) -> Result<()> {
    let source = folder.join("job.json");
    fs::write(&source, serde_json::to_vec(job)?)?;
    image.add_file(&source, JOB_FILE)?;
    let write = || {
        let mut out = BufWriter::new(File::create(file)?);
        image.write(&mut out)?;
        out.flush()
    };
    write().with_context(|| format!("write {}", file.display()))
}

/// Paths of the programs for an architecture.
#[derive(Debug, Clone)]
pub struct Programs {
    /// This program.
    pub init: PathBuf,
    pub pillion: PathBuf,
    pub lab: PathBuf,
    /// Wire tests, if they are to run.
    pub wire: Option<PathBuf>,
}

impl Programs {
    /// Builds the programs, the wire tests only if `wire` is true. Those of other architectures
    /// are static.
    pub fn build(architecture: Architecture, wire: bool) -> Result<Self> {
        const NAMES: [&str; 3] = ["pillion", "pillion-lab", "pillion-kernels"];
        // This program runs, so it is not built again for the host.
        let count = NAMES.len() - usize::from(architecture.is_of_host());
        // One build of all, because each selection of packages has its own features of dependencies.
        let packages = NAMES[..count].iter().flat_map(|name| ["--package", name]);
        let arguments: Vec<_> = ["build", "--bins"].into_iter().chain(packages).collect();
        let programs = build(architecture, &arguments)?;
        let program = |name: &str| {
            let found = programs.iter().find(|path| path.ends_with(name)).cloned();
            found.with_context(|| format!("cargo: no program {name}"))
        };
        let tests = || {
            let package = ["--package", "pillion-tests", "--test", "wire"];
            let arguments = [&["test", "--no-run"], &package[..]].concat();
            // Libraries have no executable; the last one is the requested program.
            let last = build(architecture, &arguments)?.pop();
            last.context("cargo: no wire tests")
        };
        Ok(Self {
            init: match architecture.is_of_host() {
                true => env::current_exe()?,
                false => program("pillion-kernels")?,
            },
            pillion: program("pillion")?,
            lab: program("pillion-lab")?,
            wire: wire.then(tests).transpose()?,
        })
    }
}

const CROSS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/cross");

/// Runs cargo, and returns the paths of the programs that it built.
fn build(architecture: Architecture, arguments: &[&str]) -> Result<Vec<PathBuf>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = match architecture.is_of_host() {
        true => Command::new(cargo),
        false => {
            let mut cross = Command::new(CROSS);
            cross.arg(architecture.name()).arg(cargo);
            cross
        }
    };
    let output = command
        .args(arguments)
        .args(["--quiet", "--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    if !output.status.success() {
        bail!("cargo {}: {}", arguments.join(" "), output.status);
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let messages = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executables = messages.filter_map(|it| it["executable"].as_str().map(PathBuf::from));
    Ok(executables.collect())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::catalogue::SkippedTests;

    #[test]
    fn timed_tests_run_serially_and_skipped_tests_do_not() {
        let mut catalogue = Catalogue::load().unwrap();
        catalogue.timed = vec!["timed::".to_owned()];
        let mut entry = catalogue.kernels[0].clone();
        entry.skipped = vec![SkippedTests {
            tests: "odd::".to_owned(),
            reason: "a reason".to_owned(),
        }];
        let programs = Programs {
            init: PathBuf::new(),
            pillion: PathBuf::new(),
            lab: PathBuf::new(),
            wire: None,
        };
        let stock = StockKernel::default();
        let mut work = KernelWork {
            programs: &programs,
            catalogue: &catalogue,
            entry: &entry,
            stock: &stock,
            threads: 3,
            tests: &[],
            environments: &[],
            plain: false,
        };
        assert_eq!(
            work.wire_runs(),
            [
                vec!["--test-threads=3", "--skip", "timed::", "--skip", "odd::"],
                vec!["--test-threads=1", "timed::", "--skip", "odd::"],
            ]
        );
        let tests = ["size::".to_owned()];
        work.tests = &tests;
        let requested = vec!["--test-threads=1", "size::", "--skip", "odd::"];
        assert_eq!(work.wire_runs(), [requested]);
    }
}
