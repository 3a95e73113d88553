use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::de::DeserializeOwned;

use crate::Error;
use crate::run::{BROKEN, MANIFEST_FILE, PART, RUN_FILE, SUMMARY_FILE, Summary};

/// A run in a store.
#[derive(Debug, Clone)]
pub struct StoredRun {
    /// The run's name, as in `plain,loss=2,seed=1`.
    pub name: String,
    /// The run's folder.
    pub path: PathBuf,
    /// Whether the run is whole.
    pub state: State,
}

/// Whether a run can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The run is whole, and can be used.
    Whole,
    /// The run failed, for this reason.
    Broken(String),
    /// The run is being made, or was killed.
    Part,
}

impl StoredRun {
    /// The run that is in a folder, if there is one.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = |state: &str| {
            // A variant may be called like a state.
            name.rsplit_once(&format!(".{state}"))
                .map(|it| it.0.to_owned())
        };
        let reason = path.join(BROKEN);
        let all = [RUN_FILE, SUMMARY_FILE, MANIFEST_FILE];
        let is_whole = all.iter().all(|file| path.join(file).is_file()) && !reason.exists();
        let (name, state) = if is_whole {
            (name.into_owned(), State::Whole)
        } else if let Some(name) = unfinished(BROKEN).filter(|_| reason.is_file()) {
            let why = fs::read_to_string(&reason).map_err(Error::file(&reason))?;
            (name, State::Broken(why.trim().to_owned()))
        } else if let Some(name) = unfinished(PART).filter(|_| path.join(RUN_FILE).is_file()) {
            (name, State::Part)
        } else {
            return Ok(None);
        };
        let path = path.to_owned();
        Ok(Some(Self { name, path, state }))
    }

    /// The run's file, as it was run.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn text(&self) -> Result<String, Error> {
        let path = self.path.join(RUN_FILE);
        fs::read_to_string(&path).map_err(Error::file(&path))
    }

    /// The run's summary.
    ///
    /// # Errors
    /// [`Error::File`], if it is not whole as well.
    pub fn summary(&self) -> Result<Summary, Error> {
        self.json(SUMMARY_FILE)
    }

    /// What keeps the run from being read, with what to do.
    pub(crate) fn damaged(&self, why: Error) -> Error {
        Error::Damaged {
            run: self.path.clone(),
            why: Box::new(why),
        }
    }

    /// When the run was made, as far as its folder tells.
    pub(super) fn made_at(&self) -> Option<SystemTime> {
        fs::metadata(&self.path).and_then(|it| it.modified()).ok()
    }

    /// What a file of the run says.
    pub(crate) fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        let path = self.path.join(name);
        let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
        serde_json::from_str(&text).map_err(|error| Error::file(&path)(error.into()))
    }
}
