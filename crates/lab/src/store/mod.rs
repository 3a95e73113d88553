//! The store of runs: one folder per run, `STORE/EXPERIMENT/TIME/RUN`.
//!
//! A store has no index. Its files define it, so that runs can be moved, copied and removed
//! by hand.

mod batch;
mod groups;
mod stored_run;

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

pub use batch::BatchFolder;
pub use groups::MessageSource;
pub use stored_run::{Provenance, RunState, StoredRun, TracePair};

use crate::Error;
use crate::run::EXPERIMENT_FILE;

/// A folder with runs.
#[derive(Debug, Clone)]
pub struct Store(PathBuf);

/// The runs of an experiment that were started together.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The experiment's name and the start time, as in `uniform-loss/2026-01-31T12-00-00Z`.
    pub name: String,
    /// The batch's folder.
    pub path: PathBuf,
    /// The runs, by name.
    pub runs: Vec<StoredRun>,
}

impl Batch {
    /// Returns when its latest run was made; `None` without runs.
    fn last_run_at(&self) -> Option<SystemTime> {
        self.runs.iter().filter_map(StoredRun::modified_at).max()
    }
}

impl Store {
    /// Opens the store in this folder, which need not exist.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Returns all batches in the store, by experiment and time.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn list(&self) -> Result<Vec<Batch>, Error> {
        let mut all = Vec::new();
        for experiment in subfolders(&self.0)? {
            for time in subfolders(&experiment)? {
                all.extend(self.batch(&time)?);
            }
        }
        Ok(all)
    }

    /// Finds an experiment's latest batch, a batch or a run by its name, which consists of the
    /// folders' names. Paths of these folders are names, too.
    ///
    /// # Errors
    ///
    /// [`Error::NotStored`] if no such folder exists, [`Error::File`].
    pub fn find(&self, name: &str) -> Result<StoreEntry, Error> {
        let given = Path::new(name);
        let relative_path = |component| matches!(component, Component::Normal(_));
        let path = match given.components().all(relative_path) {
            true if self.0.join(given).is_dir() || !given.exists() => self.0.join(given),
            _ => given.to_owned(),
        };
        if let Some(run) = StoredRun::read(&path)? {
            return Ok(StoreEntry::Run(run));
        }
        if let Some(run) = self.run_named(&path)? {
            return Ok(StoreEntry::Run(run));
        }
        if let Some(batch) = self.batch(&path)? {
            return Ok(StoreEntry::Batch(batch));
        }
        let mut times = Vec::new();
        for time in subfolders(&path)? {
            times.extend(self.batch(&time)?);
        }
        // Batches without runs have no time, so the last name wins.
        times
            .into_iter()
            .max_by_key(Batch::last_run_at)
            .map(StoreEntry::Batch)
            .ok_or_else(|| self.not_stored_error(name))
    }

    /// Removes a batch or a run. The experiment's folder is removed with its last batch.
    ///
    /// # Errors
    ///
    /// [`Error::NotStored`] if it is not in this store; [`Error::Busy`] if another process makes
    /// its runs; [`Error::File`].
    pub fn remove(&self, entry: &StoreEntry) -> Result<(), Error> {
        let path = entry.path();
        let depth = match entry {
            StoreEntry::Batch(_) => 2,
            StoreEntry::Run(_) => 3,
        };
        let relative_path = self.relative_path(path);
        let Some(relative_path) = relative_path.filter(|it| it.components().count() == depth)
        else {
            return Err(self.not_stored_error(&path.display().to_string()));
        };
        let _lock = match entry {
            StoreEntry::Batch(batch) => BatchFolder::at(&batch.path).lock()?,
            StoreEntry::Run(_) => None,
        };
        let path = self.0.join(relative_path);
        fs::remove_dir_all(&path).map_err(Error::file(&path))?;
        if let (StoreEntry::Batch(_), Some(experiment)) = (entry, path.parent()) {
            // Usually fails, because the experiment has other batches.
            let _ = fs::remove_dir(experiment);
        }
        Ok(())
    }

    /// Returns the path relative to the store, with all links resolved except the last component.
    fn relative_path(&self, path: &Path) -> Option<PathBuf> {
        let store = fs::canonicalize(&self.0).ok()?;
        let folder = match path.parent()? {
            here if here.as_os_str().is_empty() => Path::new("."),
            folder => folder,
        };
        let real = fs::canonicalize(folder).ok()?.join(path.file_name()?);
        Some(real.strip_prefix(store).ok()?.to_owned())
    }

    /// Returns the run that belongs at this path. The folder of an incomplete run has a suffix.
    fn run_named(&self, path: &Path) -> Result<Option<StoredRun>, Error> {
        let batch = match path.parent() {
            Some(parent) => self.batch(parent)?,
            None => None,
        };
        let name = path.file_name().unwrap_or_default();
        let mut runs = batch.into_iter().flat_map(|batch| batch.runs);
        Ok(runs.find(|run| name == run.name.as_str()))
    }

    fn not_stored_error(&self, name: &str) -> Error {
        Error::NotStored {
            name: name.to_owned(),
            store: self.0.clone(),
        }
    }

    fn batch(&self, path: &Path) -> Result<Option<Batch>, Error> {
        if !path.join(EXPERIMENT_FILE).is_file() {
            return Ok(None);
        }
        let mut runs = Vec::new();
        for folder in subfolders(path)? {
            runs.extend(StoredRun::read(&folder)?);
        }
        let name = path.strip_prefix(&self.0).unwrap_or(path);
        Ok(Some(Batch {
            name: name.display().to_string(),
            path: path.to_owned(),
            runs,
        }))
    }
}

/// The result of finding a name.
#[derive(Debug, Clone)]
pub enum StoreEntry {
    /// A batch of an experiment.
    Batch(Batch),
    /// A run of a batch.
    Run(StoredRun),
}

impl StoreEntry {
    /// Returns the folder of the batch or the run.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Batch(batch) => &batch.path,
            Self::Run(run) => &run.path,
        }
    }
}

/// Returns the visible folders in a folder by name; empty if it does not exist. Hidden ones are in
/// use by a lab kernel.
fn subfolders(path: &Path) -> Result<Vec<PathBuf>, Error> {
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
