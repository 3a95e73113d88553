use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::EngineError;
use crate::run::{BROKEN, PART, RUN_FILE, place_of_broken};

/// Why a run was not made, and what there is of it.
#[derive(Debug, thiserror::Error)]
pub struct Failed {
    /// Why the run was not made.
    #[source]
    pub error: EngineError,
    /// The folder with what there is of the run; none if there is nothing.
    pub left: Option<io::Result<PathBuf>>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.left {
            Some(Ok(folder)) => {
                write!(f, "{}; what is left is in {}", self.error, folder.display())
            }
            Some(Err(lost)) => write!(f, "{}; what is left cannot be kept: {lost}", self.error),
            None => self.error.fmt(f),
        }
    }
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        Self { error, left: None }
    }
}

/// The file of a broken run's folder that holds all that its kernel said.
const CONSOLE_FILE: &str = "console.txt";

/// What there is of a run that failed.
pub(super) struct Left<'a> {
    /// The folder inside that the run is in, if there is one, but for the end of its name.
    pub inside: &'a Path,
    /// The run's file, with its seed.
    pub run: &'a str,
    pub error: &'a str,
    pub console: &'a str,
}

impl Left<'_> {
    /// Keeps what there is of the run in a folder beside `folder`, which is for the whole run.
    pub fn keep(&self, folder: &Path) -> io::Result<PathBuf> {
        let [broken, part] = [BROKEN, PART].map(|state| beside(self.inside, state));
        let there = [&*broken, &*part, self.inside];
        let inside = match there.into_iter().find(|folder| folder.is_dir()) {
            Some(there) => there,
            None => {
                fs::create_dir(&broken)?;
                &broken
            }
        };
        fs::write(inside.join(CONSOLE_FILE), self.console)?;
        // The run itself has written these, unless its kernel broke down.
        for (file, text) in [(RUN_FILE, self.run), (BROKEN, self.error)] {
            let file = inside.join(file);
            if !file.exists() {
                fs::write(file, format!("{}\n", text.trim_end()))?;
            }
        }
        let kept = place_of_broken(folder);
        fs::rename(inside, &kept)?;
        Ok(kept)
    }
}

fn beside(folder: &Path, state: &str) -> PathBuf {
    PathBuf::from(format!("{}.{state}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says what is kept of a run whose folder inside has the name's end `state`, with these files.
    fn kept(state: &str, files: &[(&str, &str)]) -> impl Fn(&str) -> String {
        let store = tempfile::tempdir().unwrap();
        let inside = store.path().join(".run-1/run");
        fs::create_dir(store.path().join(".run-1")).unwrap();
        for (file, text) in files {
            let folder = beside(&inside, state);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), text).unwrap();
        }
        let left = Left {
            inside: &inside,
            run: "seed = 7\n",
            error: "the lab kernel ended",
            console: "[    0.0] Linux\n",
        };
        let folder = left.keep(&store.path().join("bundled")).unwrap();
        assert_eq!(folder, store.path().join("bundled.broken"));
        move |file| {
            let _store = &store;
            fs::read_to_string(folder.join(file)).unwrap()
        }
    }

    #[test]
    fn of_a_kernel_that_died_at_once_there_are_its_console_and_the_run() {
        let text = kept(PART, &[]);
        assert_eq!(text(CONSOLE_FILE), "[    0.0] Linux\n");
        assert_eq!(text(RUN_FILE), "seed = 7\n");
        assert_eq!(text(BROKEN), "the lab kernel ended\n");
    }

    #[test]
    fn of_one_that_died_later_there_is_the_run_as_far_as_it_came() {
        let text = kept(PART, &[("sender.pcap", "packets")]);
        assert_eq!(text("sender.pcap"), "packets");
        assert_eq!(text(BROKEN), "the lab kernel ended\n");
    }

    #[test]
    fn of_each_failure_is_kept_what_there_is() {
        let store = tempfile::tempdir().unwrap();
        let keep = |error: &str| {
            let inside = store.path().join(".run-1/run");
            fs::create_dir_all(store.path().join(".run-1")).unwrap();
            let left = Left {
                inside: &inside,
                run: "seed = 7\n",
                error,
                console: "",
            };
            let folder = left.keep(&store.path().join("plain,loss=0.5")).unwrap();
            fs::read_to_string(folder.join(BROKEN)).unwrap()
        };
        for error in ["no such sysctl\n", "the lab kernel ended\n", "again\n"] {
            assert_eq!(keep(error), error);
        }
    }

    #[test]
    fn a_run_that_said_itself_why_it_failed_is_believed() {
        let text = kept(
            BROKEN,
            &[(BROKEN, "no such sysctl\n"), (RUN_FILE, "its own\n")],
        );
        assert_eq!(text(BROKEN), "no such sysctl\n");
        assert_eq!(text(RUN_FILE), "its own\n");
        assert_eq!(text(CONSOLE_FILE), "[    0.0] Linux\n");
    }
}
