//! Where runs are kept: `STORE/EXPERIMENT/TIME/RUN`, a folder each.
//!
//! What belongs to a store is told by its files alone, so that runs may be moved, copied and
//! removed by hand as well.

mod groups;
mod making;
mod stored_run;

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

pub use groups::Origin;
pub use making::Making;
pub use stored_run::{Maker, State, StoredRun, Traced};

use crate::Error;
use crate::run::EXPERIMENT_FILE;

/// A folder of runs.
#[derive(Debug, Clone)]
pub struct Store(PathBuf);

/// One making of an experiment, with its runs.
#[derive(Debug, Clone)]
pub struct Made {
    /// The experiment's name and the time of the making, as in `uniform-loss/2026-01-31T12-00-00Z`.
    pub name: String,
    /// The folder of the making.
    pub path: PathBuf,
    /// The runs of the making, by name.
    pub runs: Vec<StoredRun>,
}

impl Made {
    /// When the last of its runs was made; `None` without one.
    fn last_run_at(&self) -> Option<SystemTime> {
        self.runs.iter().filter_map(StoredRun::made_at).max()
    }
}

impl Store {
    /// The store in this folder, which need not exist.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// All makings in the store, by experiment and time.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn list(&self) -> Result<Vec<Made>, Error> {
        let mut all = Vec::new();
        for experiment in folders(&self.0)? {
            for time in folders(&experiment)? {
                all.extend(self.made(&time)?);
            }
        }
        Ok(all)
    }

    /// What a name stands for: an experiment (the last making of it), a making, or a run, with the
    /// folders' names one below the other. The folders' paths are names as well.
    ///
    /// # Errors
    /// [`Error::NotStored`] if it is none of them, [`Error::File`].
    pub fn find(&self, name: &str) -> Result<Found, Error> {
        let given = Path::new(name);
        let inside = |component| matches!(component, Component::Normal(_));
        let path = match given.components().all(inside) {
            true if self.0.join(given).is_dir() || !given.exists() => self.0.join(given),
            _ => given.to_owned(),
        };
        if let Some(run) = StoredRun::read(&path)? {
            return Ok(Found::Run(run));
        }
        if let Some(run) = self.run_called(&path)? {
            return Ok(Found::Run(run));
        }
        if let Some(made) = self.made(&path)? {
            return Ok(Found::Made(made));
        }
        let mut times = Vec::new();
        for time in folders(&path)? {
            times.extend(self.made(&time)?);
        }
        // By name where that is all there is to tell, as of makings without a run.
        times
            .into_iter()
            .max_by_key(Made::last_run_at)
            .map(Found::Made)
            .ok_or_else(|| self.without(name))
    }

    /// Removes a making or a run from the disk, and the experiment's folder when it was the last in
    /// it.
    ///
    /// # Errors
    /// [`Error::NotStored`] if it is not in this store, where it belongs; [`Error::Busy`] if another
    /// process makes it just now; [`Error::File`].
    pub fn remove(&self, found: &Found) -> Result<(), Error> {
        let path = found.path();
        let depth = match found {
            Found::Made(_) => 2,
            Found::Run(_) => 3,
        };
        let inside = self.inside(path);
        let Some(inside) = inside.filter(|it| it.components().count() == depth) else {
            return Err(self.without(&path.display().to_string()));
        };
        let _held = match found {
            Found::Made(made) => Making::of(&made.path).hold()?,
            Found::Run(_) => None,
        };
        let path = self.0.join(inside);
        fs::remove_dir_all(&path).map_err(Error::file(&path))?;
        if let (Found::Made(_), Some(experiment)) = (found, path.parent()) {
            // Others are in it still, most of the time.
            let _ = fs::remove_dir(experiment);
        }
        Ok(())
    }

    /// What a path leads to inside of the store, by whatever way; a link at its end is itself meant.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let store = fs::canonicalize(&self.0).ok()?;
        let folder = match path.parent()? {
            here if here.as_os_str().is_empty() => Path::new("."),
            folder => folder,
        };
        let real = fs::canonicalize(folder).ok()?.join(path.file_name()?);
        Some(real.strip_prefix(store).ok()?.to_owned())
    }

    /// The run that belongs at this path; a run that is not whole has a folder with a longer name.
    fn run_called(&self, path: &Path) -> Result<Option<StoredRun>, Error> {
        let made = match path.parent() {
            Some(parent) => self.made(parent)?,
            None => None,
        };
        let name = path.file_name().unwrap_or_default();
        let mut runs = made.into_iter().flat_map(|made| made.runs);
        Ok(runs.find(|run| name == run.name.as_str()))
    }

    fn without(&self, name: &str) -> Error {
        Error::NotStored {
            name: name.to_owned(),
            store: self.0.clone(),
        }
    }

    fn made(&self, path: &Path) -> Result<Option<Made>, Error> {
        if !path.join(EXPERIMENT_FILE).is_file() {
            return Ok(None);
        }
        let mut runs = Vec::new();
        for folder in folders(path)? {
            runs.extend(StoredRun::read(&folder)?);
        }
        let name = path.strip_prefix(&self.0).unwrap_or(path);
        Ok(Some(Made {
            name: name.display().to_string(),
            path: path.to_owned(),
            runs,
        }))
    }
}

/// What a name stands for.
#[derive(Debug, Clone)]
pub enum Found {
    /// One making of an experiment.
    Made(Made),
    /// One run of a making.
    Run(StoredRun),
}

impl Found {
    /// The folder of the making or the run.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Made(made) => &made.path,
            Self::Run(run) => &run.path,
        }
    }
}

/// The folders in a folder, by name; none if it is not there. Hidden ones are at work.
fn folders(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(Error::file(path)(error)),
    };
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths.map_err(Error::file(path))?;
    let is_hidden = |path: &Path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'))
    };
    paths.retain(|path| path.is_dir() && !is_hidden(path));
    paths.sort_unstable();
    Ok(paths)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests;
