//! `pillion-lab run`, `run-one` and `verify`: makes runs, and makes one again.

use std::ffi::OsStr;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use pillion_cli::exit::one_line;
use pillion_cli::print::{print_json, print_line, say_line};
use pillion_cli::settings::BadInput;
use pillion_cli::{VERSION, stop};
use pillion_lab::campaign::{Campaign, Progress, live_maker, make_all_live};
use pillion_lab::engine::{Image, verify};
use pillion_lab::run::{How, RUN_FILE, perform};
use pillion_lab::settings::experiment::{self, Engine, Planned, load_run};
use pillion_lab::store::{Maker, Making, State, StoredRun};
use serde::Serialize;

use super::board::Board;
use super::boot::{MachineArgs, this_core, this_program};
use super::store::StoreArgs;

/// Run an experiment
///
/// An experiment is a file (docs/experiments.md) that stands for one or many runs. The virtual
/// engine makes each in a Linux kernel of its own, whose time is virtual: a minute takes seconds,
/// and the same run leaves the same files again, bit for bit (`pillion-lab verify`). The live
/// engine makes them on this host's kernel, in real time, and needs root. Runs that are finished
/// are kept, whatever becomes of the others.
#[derive(clap::Args)]
pub struct Args {
    /// The experiment
    #[arg(value_name = "EXPERIMENT")]
    file: PathBuf,

    /// What makes the runs
    #[arg(long, value_enum, default_value_t = Engine::Virtual)]
    engine: Engine,

    #[command(flatten)]
    store: StoreArgs,

    /// Make the one run of the experiment into this folder, unless it is there already
    #[arg(long, value_name = "FOLDER", conflicts_with = "store")]
    folder: Option<PathBuf>,

    /// Runs at a time [default: virtual: one for each processor core; live: always one]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    #[command(flatten)]
    machine: MachineArgs,

    /// Print what became of each run as JSON
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
                let making = self.make_folder()?;
                let held = making.hold()?;
                (making.folder().to_owned(), experiment.runs, held)
            }
            Some(folder) => {
                let maker = |planned: &Planned| match &kernels {
                    Some(kernels) => kernels.maker(planned),
                    None => live_maker(VERSION),
                };
                let (folder, runs) = missing(experiment.runs, folder, maker)?;
                (folder, runs, None)
            }
        };
        if let (Some(folder), []) = (&self.folder, runs.as_slice()) {
            say_line!("pillion-lab: {} is there already", folder.display());
        }
        let stop = stop::on_signal()?;
        let board = Board::new(&runs);
        let campaign = Campaign {
            version: VERSION,
            folder: &folder,
            progress: &board,
            stop: &stop,
            after: &|_| {},
        };
        let results = match &kernels {
            Some(kernels) => of_engine(kernels.make_all(&runs, &campaign)),
            None => of_engine(make_all_live(&runs, &campaign)),
        };
        board.finish();
        let shown = self.folder.as_ref().unwrap_or(&folder);
        conclude(&runs, results, shown, self.json)
    }

    /// Makes the folder `STORE/EXPERIMENT/TIME`, with the experiment's file in it.
    fn make_folder(&self) -> Result<Making> {
        let name = self.file.file_stem().and_then(OsStr::to_str);
        // What comes through a pipe is gone once it has been read, and has no name.
        let name = name.filter(|it| *it != "-" && self.file.is_file());
        let name = name.ok_or_else(|| {
            let file = self.file.display();
            BadInput(format!(
                "{file}: its runs are kept under the file's name; give a file with one"
            ))
        })?;
        let text = fs::read_to_string(&self.file);
        let text = text.with_context(|| format!("read {}", self.file.display()))?;
        Ok(Making::begin_now(&self.store.open(), name, &text)?)
    }
}

/// The one run that is to have this folder, unless it is there; and the folder it lies in.
fn missing(
    mut runs: Vec<Planned>,
    folder: &Path,
    maker: impl Fn(&Planned) -> Maker,
) -> Result<(PathBuf, Vec<Planned>)> {
    let Some(name) = folder.file_name().and_then(OsStr::to_str) else {
        let folder = folder.display();
        let why = format!(
            "--folder {folder} has no name, by which a run is called; name one that is new"
        );
        return Err(BadInput(why).into());
    };
    let [run] = runs.as_mut_slice() else {
        let count = runs.len();
        let why = format!(
            "--folder is for one run, and the experiment has {count}; `pillion-lab plan --json` has each alone"
        );
        return Err(BadInput(why).into());
    };
    run.name = name.into();
    let making = Making::of(folder.parent().unwrap_or(Path::new("")));
    let there = StoredRun::read(folder)?.is_some_and(|there| there.state == State::Whole);
    if there && making.made_by(&maker(run), run)?.is_none() {
        let why = format!(
            "{}: another run is there, or one of another pillion or lab kernel, which is never overwritten; \
             name another folder",
            folder.display()
        );
        return Err(BadInput(why).into());
    }
    Ok((making.folder().to_owned(), making.missing(&runs, maker)?))
}

fn of_engine<E: Into<anyhow::Error>>(made: Vec<Result<PathBuf, E>>) -> Vec<Result<PathBuf>> {
    made.into_iter().map(|it| it.map_err(E::into)).collect()
}

fn conclude(
    runs: &[Planned],
    results: Vec<Result<PathBuf>>,
    folder: &Path,
    json: bool,
) -> Result<ExitCode> {
    let made = runs.iter().zip(results);
    let outcomes: Vec<_> = made
        .map(|(planned, result)| Outcome::new(planned, result))
        .collect::<Result<_>>()?;
    print(&outcomes, folder, json)?;
    let whole = outcomes.iter().all(Outcome::is_whole);
    Ok(ExitCode::from(u8::from(!whole)))
}

/// What became of a run.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The run's name.
    run: String,
    /// The run's folder, if it is whole.
    folder: Option<PathBuf>,
    /// Why the run is not whole, if it is not.
    error: Option<String>,
    /// What casts doubt on the run.
    doubts: Vec<String>,
}

impl Outcome {
    pub fn new(planned: &Planned, result: Result<PathBuf>) -> Result<Self> {
        let run = planned.name.to_string();
        Ok(match result {
            Ok(folder) => {
                let summary = StoredRun::read(&folder)?.map(|run| run.summary());
                Self {
                    run,
                    folder: Some(folder),
                    error: None,
                    doubts: summary.transpose()?.map_or_else(Vec::new, |it| it.doubts),
                }
            }
            Err(error) => Self {
                run,
                folder: None,
                error: Some(one_line(&error)),
                doubts: Vec::new(),
            },
        })
    }

    pub fn is_whole(&self) -> bool {
        self.error.is_none()
    }
}

/// Prints what became of the runs: what failed, and where the rest is.
pub fn print(outcomes: &[Outcome], folder: &Path, json: bool) -> Result<()> {
    if json {
        return print_json(&outcomes);
    }
    for outcome in outcomes {
        let colon = if outcome.run.is_empty() { "" } else { ": " };
        if let Some(error) = &outcome.error {
            say_line!("pillion-lab: {}{colon}{error}", outcome.run);
        }
        for doubt in &outcome.doubts {
            say_line!("pillion-lab: {}{colon}doubtful: {doubt}", outcome.run);
        }
    }
    let whole = outcomes.iter().filter(|outcome| outcome.is_whole()).count();
    print_line!("{whole} of {} runs: {}", outcomes.len(), folder.display())?;
    Ok(())
}

/// Make one run on this host's kernel, and write its folder
#[derive(clap::Args)]
pub struct RunOneArgs {
    /// The run, as `pillion-lab plan --json` gives it: an experiment of one run
    #[arg(value_name = "RUN.toml")]
    file: PathBuf,

    /// The folder, which does not exist yet
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Write down that this engine made it
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Engine::Live)]
    engine: Engine,

    /// Write down what identifies the lab kernel
    #[arg(long, value_name = "HASH")]
    lab_kernel: Option<String>,
}

impl RunOneArgs {
    pub fn execute(self) -> Result<ExitCode> {
        let planned = load_run(&self.file)?;
        let summary = perform(
            &planned.run,
            &self.folder,
            &How {
                version: match self.engine {
                    Engine::Live => VERSION,
                    // It is compared, and builds of two commits may do the same; host.json has
                    // the commit.
                    Engine::Virtual => env!("CARGO_PKG_VERSION"),
                },
                engine: self.engine,
                lab_kernel: self.lab_kernel,
                own_path: false,
                stop: stop::on_signal()?,
                progress: &|_| {},
            },
        )?;
        for doubt in &summary.doubts {
            say_line!("pillion-lab: {doubt}");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Repeat a run, and compare every byte of its results
///
/// The run must have been made by the virtual engine. It is made again with the kernel and the
/// pillion of now. Names the files that differ, and ends with exit status 1 if there are any.
/// host.json, which tells of the host and of real time, is not compared, nor is run.toml.
#[derive(clap::Args)]
pub struct VerifyArgs {
    /// The run's folder
    #[arg(value_name = "RUN")]
    run: PathBuf,

    #[command(flatten)]
    machine: MachineArgs,
}

impl VerifyArgs {
    pub fn execute(self) -> Result<ExitCode> {
        let file = self.run.join(RUN_FILE);
        if !file.is_file() {
            let why = "is the folder of no run; `pillion-lab list` names runs";
            return Err(BadInput(format!("{}: it {why}", self.run.display())).into());
        }
        let planned = load_run(&file)?;
        let machine = self
            .machine
            .machines()?
            .for_run(&planned.run, this_core())?;
        let image = Image::new(&this_program()?)?;
        let stop = stop::on_signal()?;
        let board = Board::new(std::slice::from_ref(&planned));
        let line = board.begin(&planned);
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
        board.finish();
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
