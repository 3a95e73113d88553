use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::settings::experiment::Planned;
use pillion_cli::settings::BadInput;

use super::{Maker, State, Store, StoredRun};
use crate::Error;
use crate::hold::{Held, hold_for};
use crate::run::{EXPERIMENT_FILE, RUN_FILE, SUMMARY_FILE, digest_file, folder_name};

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

    /// Begins one, or goes on with it, and holds it as [`Making::hold`]: the file of one that another
    /// process makes stays as it is.
    ///
    /// # Errors
    /// As [`Making::hold`].
    pub fn begin_held(folder: &Path, text: &str) -> Result<(Self, Held), Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let file = folder.join(EXPERIMENT_FILE);
        let opened = File::options().append(true).create(true).open(&file);
        opened.map_err(Error::file(&file))?;
        let held = Self::of(folder).hold()?;
        Ok((Self::begin(folder, text)?, held))
    }

    /// Begins one in a folder of its own, which the experiment's name and the time of day in seconds
    /// tell; where another has that second, the next one.
    ///
    /// # Errors
    /// [`Error::Input`] if no folder of a store is called so; [`Error::File`].
    pub fn begin_now(store: &Store, experiment: &str, text: &str) -> Result<Self, Error> {
        if !is_listed(experiment) {
            let why = format!(
                "`{experiment}`: runs are kept under an experiment's name, and none is found that is empty, \
                 begins with a point or has a slash; give the file another name"
            );
            return Err(BadInput(why).into());
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
                made => {
                    made.map_err(Error::file(&folder))?;
                    return Self::begin(&folder, text);
                }
            }
        }
    }

    /// Holds it for this process alone, as long as the result lives: another one that would make the
    /// same runs would come upon them half made.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process holds it; [`Error::File`].
    pub fn hold(&self) -> Result<Held, Error> {
        hold_for("these runs", &self.0.join(EXPERIMENT_FILE))
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

    /// The run in its folder, if it is as [`Making::made`] has it, and was made by what would make it
    /// now.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn made_by(&self, maker: &Maker, planned: &Planned) -> Result<Option<StoredRun>, Error> {
        let made = self.made(planned)?;
        let by = made.as_ref().map(StoredRun::maker).transpose()?;
        Ok(made.filter(|_| by.as_ref() == Some(maker)))
    }

    /// The runs that are to be made, each by its `maker`. A run that is in the way of one, for it is
    /// another one by now, another made it, or it is not whole any more or cannot be told to be the
    /// same, is removed, with what was kept of it.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Input`] if what is in the way is no run.
    pub fn missing(
        &self,
        runs: &[Planned],
        maker: impl Fn(&Planned) -> Maker,
    ) -> Result<Vec<Planned>, Error> {
        let mut missing = Vec::new();
        for planned in runs {
            let made = match self.made_by(&maker(planned), planned) {
                Err(Error::File { source, .. }) if is_damage(&source) => None,
                made => made?,
            };
            if made.is_none() {
                remove(&self.place(planned))?;
                missing.push(planned.clone());
            }
        }
        Ok(missing)
    }
}

/// Whether an experiment of this name is one folder of a store, and no hidden one.
fn is_listed(experiment: &str) -> bool {
    !experiment.is_empty() && !experiment.starts_with('.') && !experiment.contains('/')
}

/// Whether a file is there, and says something else than it was written to say.
fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, UnexpectedEof};
    [InvalidData, UnexpectedEof].contains(&error.kind())
}

fn remove(run: &Path) -> Result<(), Error> {
    if run.symlink_metadata().is_ok() {
        if !was_a_run(run) {
            let run = run.display();
            let why = "something else is there, which is never overwritten; name another folder";
            return Err(BadInput(format!("{run}: {why}")).into());
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

#[cfg(test)]
mod tests {
    use crate::settings::experiment;

    use super::*;
    use crate::run::MANIFEST_FILE;

    #[test]
    fn what_another_pillion_or_another_kernel_made_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let text = "duration = 1\n[group.thin]\n";
        let file = folder.path().join("small.toml");
        fs::write(&file, text).unwrap();
        let runs = experiment::load(&file).unwrap().runs;
        let making = Making::begin(&folder.path().join("runs"), text).unwrap();
        let maker = |version: &str, kernel: &str| Maker {
            version: version.to_owned(),
            lab_kernel: Some(kernel.to_owned()),
        };
        let make = || {
            let place = making.place(&runs[0]);
            fs::create_dir(&place).unwrap();
            fs::write(place.join(RUN_FILE), runs[0].run.to_text()).unwrap();
            fs::write(place.join(SUMMARY_FILE), "{}").unwrap();
            let manifest = r#"{"version": "0.1.0", "lab_kernel": "91235ed9", "seed": 1}"#;
            fs::write(place.join(MANIFEST_FILE), manifest).unwrap();
        };
        let missing = |maker: Maker| making.missing(&runs, |_| maker.clone()).unwrap().len();
        make();
        assert_eq!(missing(maker("0.1.0", "91235ed9")), 0);
        for other in [maker("0.2.0", "91235ed9"), maker("0.1.0", "d3b84ef5")] {
            assert_eq!(missing(other), 1);
            assert!(making.made(&runs[0]).unwrap().is_none(), "it is removed");
            make();
        }
        for file in [MANIFEST_FILE, RUN_FILE] {
            for damaged in [&b""[..], b"{\"version\"", b"\xff\xfe"] {
                fs::write(making.place(&runs[0]).join(file), damaged).unwrap();
                assert_eq!(missing(maker("0.1.0", "91235ed9")), 1, "{file}");
                make();
            }
        }
    }
}
