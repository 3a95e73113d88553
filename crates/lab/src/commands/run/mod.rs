//! `pillion-lab run`: every run of an experiment, each into a folder of its own.

mod outcome;

use std::ffi::OsStr;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use pillion_cli::VERSION;
use pillion_cli::print::say_line;
use pillion_cli::settings::BadInput;
use pillion_cli::stop;
use pillion_lab::campaign::{Campaign, live_maker, make_all_live};
use pillion_lab::settings::experiment::{self, Engine, Planned};
use pillion_lab::store::{Maker, Making, State, StoredRun};

use super::board::Board;
use super::machine::MachineArgs;
use super::store::StoreArgs;
use outcome::{Outcome, print};

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
