use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use pillion_settings::experiment::Planned;

use super::{EXPERIMENT_FILE, State, Store, StoredRun};
use crate::Error;
use crate::reproduction::digest_file;
use crate::run::{RUN_FILE, SUMMARY_FILE};

/// The folder that the runs of an experiment are made into, as far as they are not there.
#[derive(Debug, Clone)]
pub struct Making(PathBuf);

impl Making {
    /// Begins one, or goes on with it; `text` is the experiment's file.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn begin(folder: &Path, text: &str) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let file = folder.join(EXPERIMENT_FILE);
        // Others that make runs of it may be reading.
        if fs::read_to_string(&file).ok().as_deref() != Some(text) {
            fs::write(&file, text).map_err(Error::file(&file))?;
        }
        Ok(Self(folder.to_owned()))
    }

    /// Begins one in a folder of its own, which the experiment's name and the time of day in seconds
    /// tell; where another has that second, the next one.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn begin_now(store: &Store, experiment: &str, text: &str) -> Result<Self, Error> {
        let all = store.0.join(experiment);
        fs::create_dir_all(&all).map_err(Error::file(&all))?;
        loop {
            let time = humantime::format_rfc3339_seconds(SystemTime::now());
            let folder = all.join(time.to_string().replace(':', "-"));
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    thread::sleep(Duration::from_millis(50));
                }
                made => {
                    made.map_err(Error::file(&folder))?;
                    return Self::begin(&folder, text);
                }
            }
        }
    }

    /// One that another began.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// The path of the folder that a run is to have.
    #[must_use]
    pub fn place(&self, planned: &Planned) -> PathBuf {
        self.0.join(folder_name(planned))
    }

    /// The run in its folder, if it is there, whole, and the same.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn made(&self, planned: &Planned) -> Result<Option<StoredRun>, Error> {
        let run = StoredRun::read(&self.place(planned))?;
        let run = run.filter(|run| run.state == State::Whole);
        Ok(match run {
            Some(run) if run.text()? == planned.run.to_text() => Some(run),
            _ => None,
        })
    }

    /// The runs that are to be made. A run that is in the way of one, for it is another one by now
    /// or not whole any more, is removed, with what was kept of it.
    ///
    /// # Errors
    /// [`Error::File`], also if what is in the way is no run.
    pub fn missing(&self, runs: &[Planned]) -> Result<Vec<Planned>, Error> {
        let mut missing = Vec::new();
        for planned in runs {
            if self.made(planned)?.is_none() {
                remove(&self.place(planned))?;
                missing.push(planned.clone());
            }
        }
        Ok(missing)
    }
}

/// The name of a run's folder.
#[must_use]
pub fn folder_name(planned: &Planned) -> &str {
    match planned.name.as_str() {
        "" => "run",
        name => name,
    }
}

fn remove(run: &Path) -> Result<(), Error> {
    if run.symlink_metadata().is_ok() {
        if !was_a_run(run) {
            let why = "something else is there, which is never overwritten; name another folder";
            return Err(Error::file(run)(io::Error::other(why)));
        }
        fs::remove_dir_all(run).map_err(Error::file(run))?;
    }
    let digest = digest_file(run);
    if digest.exists() {
        fs::remove_file(&digest).map_err(Error::file(&digest))?;
    }
    Ok(())
}

/// Is it a run's folder? Of one that is to be made again, Snakemake takes away the file that the
/// workflow declares, and leaves an empty folder where there was none.
fn was_a_run(folder: &Path) -> bool {
    let is_empty = || fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    let has = |file: &str| folder.join(file).is_file();
    has(RUN_FILE) && has(SUMMARY_FILE) || is_empty()
}
