//! `pillion-lab run`, `run-one` and `verify`.

use std::ffi::OsStr;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use pillion_cli::exit::one_line;
use pillion_cli::print::{print_json, print_line};
use pillion_cli::settings::BadInput;
use pillion_cli::{VERSION, stop};
use pillion_lab::campaign::{Campaign, Progress, live_provenance, make_all_live};
use pillion_lab::engine::{Image, verify};
use pillion_lab::run::{RUN_FILE, RunOptions, perform};
use pillion_lab::settings::experiment::{self, Engine, PlannedRun, load_run};
use pillion_lab::store::{BatchFolder, Provenance, RunState, StoredRun};
use serde::Serialize;

use super::boot::{MachineArgs, this_core, this_program};
use super::progress_display::ProgressDisplay;
use super::store::StoreArgs;

/// Make the runs of an experiment
///
/// An experiment file (docs/lab/experiments.md) describes one or many runs. The virtual engine makes
/// each run in its own Linux kernel with virtual time: a minute takes seconds, and the same run
/// repeats bit for bit (`pillion-lab verify`). The live engine uses this host's kernel in real
/// time, and needs root. Finished runs are stored, even if others fail.
#[derive(clap::Args)]
pub struct Args {
    /// Experiment file
    #[arg(value_name = "EXPERIMENT")]
    file: PathBuf,

    /// Engine that makes the runs
    #[arg(long, value_enum, default_value_t = Engine::Virtual)]
    engine: Engine,

    #[command(flatten)]
    store: StoreArgs,

    /// Store the only run of the experiment in FOLDER, unless it exists
    #[arg(long, value_name = "FOLDER", conflicts_with = "store")]
    folder: Option<PathBuf>,

    /// Concurrent runs [default: virtual: one per processor core; live: always one]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    #[command(flatten)]
    machine: MachineArgs,

    /// Print the result of each run as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let experiment = experiment::load(&self.file)?;
        let kernels = match self.engine {
            Engine::Virtual => Some(self.machine.kernels(self.jobs)?),
            Engine::Live => None,
        };
        let (folder, runs, _held) = match &self.folder {
            None => {
                let batch = self.make_folder()?;
                let held = batch.lock()?;
                (batch.folder().to_owned(), experiment.runs, held)
            }
            Some(folder) => {
                let provenance = |planned: &PlannedRun| match &kernels {
                    Some(kernels) => kernels.provenance(planned),
                    None => live_provenance(VERSION),
                };
                let (folder, runs) = missing(experiment.runs, folder, provenance)?;
                (folder, runs, None)
            }
        };
        if let (Some(folder), []) = (&self.folder, runs.as_slice()) {
            log::info!("{} exists already", folder.display());
        }
        let stop = stop::on_signal()?;
        let progress_display = ProgressDisplay::new(&runs);
        let campaign = Campaign {
            version: VERSION,
            folder: &folder,
            progress: &progress_display,
            stop: &stop,
            after: &|_| {},
        };
        let results = match &kernels {
            Some(kernels) => into_anyhow(kernels.make_all(&runs, &campaign)),
            None => into_anyhow(make_all_live(&runs, &campaign)),
        };
        progress_display.finish();
        let shown = self.folder.as_ref().unwrap_or(&folder);
        conclude(&runs, results, shown, self.json)
    }

    /// Creates the folder `STORE/EXPERIMENT/TIME` with the experiment's file.
    fn make_folder(&self) -> Result<BatchFolder> {
        let name = self.file.file_stem().and_then(OsStr::to_str);
        // A pipe can be read only once, and has no name.
        let name = name.filter(|it| *it != "-" && self.file.is_file());
        let name = name.ok_or_else(|| {
            let file = self.file.display();
            BadInput(format!(
                "{file}: runs are stored under the file's name; give a regular file"
            ))
        })?;
        let text = fs::read_to_string(&self.file);
        let text = text.with_context(|| format!("read {}", self.file.display()))?;
        Ok(BatchFolder::create_timestamped(
            &self.store.open(),
            name,
            &text,
        )?)
    }
}

/// Returns the only run, if its folder does not exist, and the parent folder.
fn missing(
    mut runs: Vec<PlannedRun>,
    folder: &Path,
    provenance: impl Fn(&PlannedRun) -> Provenance,
) -> Result<(PathBuf, Vec<PlannedRun>)> {
    let Some(name) = folder.file_name().and_then(OsStr::to_str) else {
        let folder = folder.display();
        let reason =
            format!("--folder {folder} does not end in a name for the run; give another folder");
        return Err(BadInput(reason).into());
    };
    let [run] = runs.as_mut_slice() else {
        let count = runs.len();
        let reason = format!(
            "--folder is for one run, but the experiment has {count}; `pillion-lab plan --json` prints a file for each"
        );
        return Err(BadInput(reason).into());
    };
    run.name = name.into();
    let batch = BatchFolder::at(folder.parent().unwrap_or(Path::new("")));
    let stored = StoredRun::read(folder)?.is_some_and(|stored| stored.state == RunState::Complete);
    if stored && batch.finished_run_by(&provenance(run), run)?.is_none() {
        let reason = format!(
            "{}: the folder has another run, or one by another pillion or lab kernel; runs are \
             never overwritten; name another folder",
            folder.display()
        );
        return Err(BadInput(reason).into());
    }
    Ok((batch.folder().to_owned(), batch.missing(&runs, provenance)?))
}

fn into_anyhow<E: Into<anyhow::Error>>(made: Vec<Result<PathBuf, E>>) -> Vec<Result<PathBuf>> {
    made.into_iter().map(|it| it.map_err(E::into)).collect()
}

fn conclude(
    runs: &[PlannedRun],
    results: Vec<Result<PathBuf>>,
    folder: &Path,
    json: bool,
) -> Result<ExitCode> {
    let made = runs.iter().zip(results);
    let results: Vec<_> = made
        .map(|(planned, result)| RunResult::new(planned, result))
        .collect::<Result<_>>()?;
    print(&results, folder, json)?;
    let complete = results.iter().all(RunResult::is_complete);
    Ok(ExitCode::from(u8::from(!complete)))
}

/// Result of a run.
#[derive(Debug, Serialize)]
pub struct RunResult {
    /// Name of the run.
    run: String,
    /// Folder of the run, if it is complete.
    folder: Option<PathBuf>,
    /// Reason why the run is incomplete, if it is.
    error: Option<String>,
    /// Warnings of the run.
    warnings: Vec<String>,
}

impl RunResult {
    pub fn new(planned: &PlannedRun, result: Result<PathBuf>) -> Result<Self> {
        let run = planned.name.to_string();
        Ok(match result {
            Ok(folder) => {
                let summary = StoredRun::read(&folder)?.map(|run| run.summary());
                Self {
                    run,
                    folder: Some(folder),
                    error: None,
                    warnings: summary.transpose()?.map_or_else(Vec::new, |it| it.warnings),
                }
            }
            Err(error) => Self {
                run,
                folder: None,
                error: Some(one_line(&error)),
                warnings: Vec::new(),
            },
        })
    }

    pub fn is_complete(&self) -> bool {
        self.error.is_none()
    }
}

/// Prints the results of the runs: failures and warnings on standard error, then the folder.
pub fn print(results: &[RunResult], folder: &Path, json: bool) -> Result<()> {
    if json {
        return print_json(&results);
    }
    for result in results {
        let colon = if result.run.is_empty() { "" } else { ": " };
        if let Some(error) = &result.error {
            log::error!("{}{colon}{error}", result.run);
        }
        for warning in &result.warnings {
            log::warn!("{}{colon}{warning}", result.run);
        }
    }
    let complete = results.iter().filter(|result| result.is_complete()).count();
    print_line!("{complete} of {} runs: {}", results.len(), folder.display())?;
    Ok(())
}

/// Make one run on this host's kernel and store it
#[derive(clap::Args)]
pub struct RunOneArgs {
    /// Experiment file of one run, as in `pillion-lab plan --json`
    #[arg(value_name = "RUN.toml")]
    file: PathBuf,

    /// New folder for the run
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Engine to record in the manifest
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Engine::Live)]
    engine: Engine,

    /// Hash of the lab kernel to record in the manifest
    #[arg(long, value_name = "HASH")]
    lab_kernel: Option<String>,
}

impl RunOneArgs {
    pub fn execute(self) -> Result<ExitCode> {
        let planned = load_run(&self.file)?;
        let summary = perform(
            &planned.run,
            &self.folder,
            &RunOptions {
                version: match self.engine {
                    Engine::Live => VERSION,
                    // The manifest is compared, and builds of two commits can be equal; host.json
                    // has the commit.
                    Engine::Virtual => env!("CARGO_PKG_VERSION"),
                },
                engine: self.engine,
                lab_kernel: self.lab_kernel,
                own_path: false,
                stop: stop::on_signal()?,
                progress: &|_| {},
            },
        )?;
        for warning in &summary.warnings {
            log::warn!("{warning}");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Repeat a run and compare every byte of its results
///
/// Requires a run of the virtual engine. Repeats it with the current lab kernel and the current
/// pillion, names the files that differ, and then exits with status 1. host.json (host and real
/// time) and run.toml are not compared.
#[derive(clap::Args)]
pub struct VerifyArgs {
    /// Folder of the run
    #[arg(value_name = "RUN")]
    run: PathBuf,

    #[command(flatten)]
    machine: MachineArgs,
}

impl VerifyArgs {
    pub fn execute(self) -> Result<ExitCode> {
        let file = self.run.join(RUN_FILE);
        if !file.is_file() {
            let reason = "not the folder of a run; `pillion-lab list` shows runs";
            return Err(BadInput(format!("{}: {reason}", self.run.display())).into());
        }
        let planned = load_run(&file)?;
        let machine = self
            .machine
            .machines()?
            .for_run(&planned.run, this_core())?;
        let image = Image::new(&this_program()?)?;
        let stop = stop::on_signal()?;
        let progress_display = ProgressDisplay::new(std::slice::from_ref(&planned));
        let line = progress_display.start(&planned);
        let differences = verify(
            &machine,
            &image,
            pillion_cli::VERSION,
            &planned.run,
            &self.run,
            &stop,
            |time| {
                line.reached(time);
            },
        );
        drop(line);
        progress_display.finish();
        let differences = differences?;
        if differences.is_empty() {
            print_line!("the same, bit for bit")?;
        }
        for difference in &differences {
            print_line!("{difference}")?;
        }
        Ok(ExitCode::from(u8::from(!differences.is_empty())))
    }
}
