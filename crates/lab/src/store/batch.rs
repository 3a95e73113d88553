use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::settings::experiment::PlannedRun;
use pillion_cli::settings::BadInput;

use super::{Provenance, RunState, Store, StoredRun};
use crate::Error;
use crate::lock::{RunLock, lock_or_busy};
use crate::run::{EXPERIMENT_FILE, RUN_FILE, SUMMARY_FILE, folder_name, summary_cache_file};

/// The folder for the runs of an experiment, in which finished runs are reused.
#[derive(Debug, Clone)]
pub struct BatchFolder(PathBuf);

impl BatchFolder {
    /// Creates the folder if necessary, and writes the experiment's file with this text.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn open(folder: &Path, text: &str) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let file = folder.join(EXPERIMENT_FILE);
        // Other processes that use the same folder may be reading the file.
        if fs::read_to_string(&file).ok().as_deref() != Some(text) {
            fs::write(&file, text).map_err(Error::file(&file))?;
        }
        Ok(Self(folder.to_owned()))
    }

    /// Creates the folder if necessary, and locks it before the experiment's file is written. The
    /// file of a folder that another process uses is not changed.
    ///
    /// # Errors
    ///
    /// As [`BatchFolder::lock`].
    pub fn open_locked(folder: &Path, text: &str) -> Result<(Self, RunLock), Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let file = folder.join(EXPERIMENT_FILE);
        let opened = File::options().append(true).create(true).open(&file);
        opened.map_err(Error::file(&file))?;
        let lock = Self::at(folder).lock()?;
        Ok((Self::open(folder, text)?, lock))
    }

    /// Creates a new folder named by the experiment and the current second. If that exists, the
    /// next second is used.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] if a store cannot have a folder of this name; [`Error::File`].
    pub fn create_timestamped(store: &Store, experiment: &str, text: &str) -> Result<Self, Error> {
        if !is_valid_experiment_name(experiment) {
            let reason = format!(
                "invalid experiment name `{experiment}`: it must not be empty, start with a dot \
                 or contain a slash; give the file another name"
            );
            return Err(BadInput(reason).into());
        }
        let all = store.0.join(experiment);
        fs::create_dir_all(&all).map_err(Error::file(&all))?;
        loop {
            let time = humantime::format_rfc3339_seconds(SystemTime::now());
            let folder = all.join(time.to_string().replace(':', "-"));
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    thread::sleep(Duration::from_millis(50));
                }
                finished_run => {
                    finished_run.map_err(Error::file(&folder))?;
                    return Self::open(&folder, text);
                }
            }
        }
    }

    /// Locks the folder for this process, so that no other one reads or replaces its incomplete
    /// runs.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if another process holds the lock; [`Error::File`].
    pub fn lock(&self) -> Result<RunLock, Error> {
        lock_or_busy("these runs", &self.0.join(EXPERIMENT_FILE))
    }

    /// Refers to an existing folder.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Returns the folder's path.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a run's folder.
    #[must_use]
    pub fn run_path(&self, planned: &PlannedRun) -> PathBuf {
        self.0.join(folder_name(planned))
    }

    /// Returns the run if it exists, is complete, and has the same settings.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn finished_run(&self, planned: &PlannedRun) -> Result<Option<StoredRun>, Error> {
        let run = StoredRun::read(&self.run_path(planned))?;
        let run = run.filter(|run| run.state == RunState::Complete);
        Ok(match run {
            Some(run) if run.text()? == planned.run.to_text() => Some(run),
            _ => None,
        })
    }

    /// Returns the run like [`BatchFolder::finished_run`], if the same version and kernel made it.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn finished_run_by(
        &self,
        provenance: &Provenance,
        planned: &PlannedRun,
    ) -> Result<Option<StoredRun>, Error> {
        let finished_run = self.finished_run(planned)?;
        let by = finished_run
            .as_ref()
            .map(StoredRun::provenance)
            .transpose()?;
        Ok(finished_run.filter(|_| by.as_ref() == Some(provenance)))
    }

    /// Returns the runs that have to be made. A run in their place is removed together with its
    /// cache, if its settings or provenance differ or if it is incomplete or damaged.
    ///
    /// # Errors
    ///
    /// [`Error::File`]; [`Error::Input`] if a folder in the way is not a run.
    pub fn missing(
        &self,
        runs: &[PlannedRun],
        provenance: impl Fn(&PlannedRun) -> Provenance,
    ) -> Result<Vec<PlannedRun>, Error> {
        let mut missing = Vec::new();
        for planned in runs {
            let finished_run = match self.finished_run_by(&provenance(planned), planned) {
                Err(Error::File { source, .. }) if is_corruption(&source) => None,
                finished_run => finished_run?,
            };
            if finished_run.is_none() {
                remove(&self.run_path(planned))?;
                missing.push(planned.clone());
            }
        }
        Ok(missing)
    }
}

/// Whether the name is that of a single, visible folder.
fn is_valid_experiment_name(experiment: &str) -> bool {
    !experiment.is_empty() && !experiment.starts_with('.') && !experiment.contains('/')
}

/// Whether a file exists but has invalid content.
fn is_corruption(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, UnexpectedEof};
    [InvalidData, UnexpectedEof].contains(&error.kind())
}

fn remove(run: &Path) -> Result<(), Error> {
    if run.symlink_metadata().is_ok() {
        if !is_run_folder(run) {
            let run = run.display();
            let reason =
                "the folder has other files, which are never overwritten; name another folder";
            return Err(BadInput(format!("{run}: {reason}")).into());
        }
        fs::remove_dir_all(run).map_err(Error::file(run))?;
    }
    let cache = summary_cache_file(run);
    if cache.exists() {
        fs::remove_file(&cache).map_err(Error::file(&cache))?;
    }
    Ok(())
}

/// Whether a folder belongs to a run. Before it repeats a run, Snakemake removes the file that the
/// workflow declares, or creates an empty folder.
fn is_run_folder(folder: &Path) -> bool {
    let is_empty = || fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    let has = |file: &str| folder.join(file).is_file();
    has(RUN_FILE) && has(SUMMARY_FILE) || is_empty()
}

#[cfg(test)]
mod tests {
    use crate::settings::experiment;

    use super::*;
    use crate::run::MANIFEST_FILE;

    #[test]
    fn run_of_other_version_or_kernel_is_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let text = "duration = 1\n[group.thin]\n";
        let file = folder.path().join("small.toml");
        fs::write(&file, text).unwrap();
        let runs = experiment::load(&file).unwrap().runs;
        let batch_folder = BatchFolder::open(&folder.path().join("runs"), text).unwrap();
        let provenance = |version: &str, kernel: &str| Provenance {
            version: version.to_owned(),
            lab_kernel: Some(kernel.to_owned()),
        };
        let make = || {
            let run_path = batch_folder.run_path(&runs[0]);
            fs::create_dir(&run_path).unwrap();
            fs::write(run_path.join(RUN_FILE), runs[0].run.to_text()).unwrap();
            fs::write(run_path.join(SUMMARY_FILE), "{}").unwrap();
            let manifest = r#"{"version": "0.1.0", "lab_kernel": "91235ed9", "seed": 1}"#;
            fs::write(run_path.join(MANIFEST_FILE), manifest).unwrap();
        };
        let missing = |provenance: Provenance| {
            batch_folder
                .missing(&runs, |_| provenance.clone())
                .unwrap()
                .len()
        };
        make();
        assert_eq!(missing(provenance("0.1.0", "91235ed9")), 0);
        for other in [
            provenance("0.2.0", "91235ed9"),
            provenance("0.1.0", "d3b84ef5"),
        ] {
            assert_eq!(missing(other), 1);
            assert!(
                batch_folder.finished_run(&runs[0]).unwrap().is_none(),
                "it is removed"
            );
            make();
        }
        for file in [MANIFEST_FILE, RUN_FILE] {
            for damaged in [&b""[..], b"{\"version\"", b"\xff\xfe"] {
                fs::write(batch_folder.run_path(&runs[0]).join(file), damaged).unwrap();
                assert_eq!(missing(provenance("0.1.0", "91235ed9")), 1, "{file}");
                make();
            }
        }
    }
}
