//! One run in a lab kernel, its folder, and what is left of it if it fails.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::unistd::gethostname;
use serde::Serialize;
use tempfile::{Builder, TempDir};

use super::{Ending, EngineError, Image, Job, Machine, RESULTS};
use crate::hold::{Held, hold, turn};
use crate::run::{BROKEN, PART, RUN_FILE, place_of_broken};
use crate::settings::experiment::{Engine, Run};
use crate::{PROGRAM, kernel_release};

/// The path inside of the run's file.
const INSIDE: &str = "/etc/pillion/run.toml";
/// The name of the run's folder inside.
const NAME: &str = "run";

/// Makes one run of an experiment in a lab kernel, by `pillion-lab run-one` inside; `image` is one
/// whose init is pillion, of the version `pillion`. The run's files come into `folder`, which must
/// not be there, and is there only if all is well.
///
/// `reached` is told how far virtual time has come; the run ends without a trace when `stop` is
/// set.
///
/// # Errors
/// [`Failed`], for the reasons of [`super::Running::wait`], and [`EngineError::Inside`] with the
/// run's own words where it fails.
pub fn run_virtually(
    machine: &Machine,
    image: &Image,
    pillion: &str,
    run: &Run,
    folder: &Path,
    stop: &AtomicBool,
    mut reached: impl FnMut(Duration),
) -> Result<(), Failed> {
    let parent = folder.parent().unwrap_or(Path::new("."));
    let out =
        Working::begin(parent).map_err(EngineError::system("make a folder for the results"))?;
    let mut image = image.clone();
    image.add_text(INSIDE, &run.to_text());
    image.set_job(&job(machine));
    let (begun, clock) = (SystemTime::now(), Instant::now());
    let words = Words::default();
    let running = machine.start(
        &image,
        Some(out.path()),
        Box::new(words.clone()),
        Box::new(words.clone()),
    )?;
    let console = running.console();
    let mut virtual_time = Duration::ZERO;
    let ended = running.wait(stop, |time| {
        virtual_time = time;
        reached(time);
    });
    let error = match ended {
        Ok(Ending::Exited(0)) => {
            let whole = out.path().join(NAME);
            let facts = HostFacts::gather(machine, pillion, begun, clock.elapsed(), virtual_time);
            return fs::write(whole.join(HOST_FILE), facts.to_json())
                .and_then(|()| fs::rename(&whole, folder))
                .map_err(|error| EngineError::system("keep the run's folder")(error).into());
        }
        Err(EngineError::Stopped) => return Err(EngineError::Stopped.into()),
        Ok(ending) => EngineError::Inside(words.or(ending)),
        Err(error) => error,
    };
    let left = Left {
        inside: &out.path().join(NAME),
        run: &run.to_text(),
        error: &error.to_string(),
        console: &console.text(),
    };
    let left = Some(left.keep(folder));
    Err(Failed { error, left })
}

/// The job of pillion itself, to make the run.
fn job(machine: &Machine) -> Job {
    let folder = Path::new(RESULTS).join(NAME);
    let made_by = Engine::Virtual.to_string();
    let mut arguments = ["run-one", "--engine", &made_by].map(String::from).to_vec();
    if let Some(hash) = machine.kernel.hash() {
        arguments.extend(["--lab-kernel", hash].map(String::from));
    }
    arguments.extend([INSIDE.to_owned(), folder.to_string_lossy().into_owned()]);
    Job {
        program: "/init".to_owned(),
        arguments,
        ..Job::default()
    }
}

/// What a program wrote to one of its outputs.
#[derive(Debug, Clone, Default)]
struct Words(Arc<Mutex<Vec<u8>>>);

impl Words {
    /// The program's last words, or how it ended.
    fn or(&self, ending: Ending) -> String {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let words = String::from_utf8_lossy(&words);
        let last = words.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or_else(
            || ending.to_string(),
            |line| {
                let reason = line
                    .strip_prefix(PROGRAM)
                    .and_then(|it| it.strip_prefix(": "));
                reason.unwrap_or(line).to_owned()
            },
        )
    }
}

impl Write for Words {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The file of a run's folder that tells of the host that it was made on: the only one in which
/// two runs may differ.
pub const HOST_FILE: &str = "host.json";

/// Where and how a run was made.
#[derive(Debug, Clone, Serialize)]
pub(super) struct HostFacts {
    /// pillion's version, with its commit.
    pillion: String,
    /// When the run began, in seconds since 1970.
    begun: u64,
    /// Real time that the run took, in seconds.
    real_s: f64,
    /// Virtual time from the kernel's start to its last report, in seconds.
    virtual_s: f64,
    /// Virtual seconds for each real second.
    speed: f64,
    /// The release of the host's kernel.
    host_kernel: String,
    /// The name of the host's processor.
    processor: String,
    /// Memory of the lab kernel in MiB.
    memory_mib: u32,
    /// The lab kernel: its release, source, patches and configuration, as it was built.
    lab_kernel: BTreeMap<&'static str, String>,
}

impl HostFacts {
    fn gather(
        machine: &Machine,
        pillion: &str,
        begun: SystemTime,
        real: Duration,
        virtual_time: Duration,
    ) -> Self {
        let since = begun.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (real_s, virtual_s) = (real.as_secs_f64(), virtual_time.as_secs_f64());
        Self {
            pillion: pillion.to_owned(),
            begun: since.as_secs(),
            real_s,
            virtual_s,
            speed: virtual_s / real_s,
            host_kernel: kernel_release(),
            processor: processor(),
            memory_mib: machine.memory_mib,
            lab_kernel: machine.kernel.described(),
        }
    }

    fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(": "));
    name.map_or_else(String::new, |(_, name)| name.to_owned())
}

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

// The folder that a kernel writes a run's results to, until they have their own.

/// A folder that is this process's as long as this lives, and removed then.
pub(super) struct Working {
    folder: TempDir,
    _held: Held,
}

impl Working {
    /// Makes one in a folder, and removes what processes of this host left there that were killed.
    pub fn begin(parent: &Path) -> io::Result<Self> {
        // Locks may hold on one host alone, and others may share the folder.
        let host = gethostname().unwrap_or_default();
        let prefix = format!(".run-{}-", host.to_string_lossy());
        let turn = turn(parent)?;
        if turn.is_some() {
            remove_left(parent, &prefix);
        }
        let folder = Builder::new().prefix(&prefix).tempdir_in(parent)?;
        let _held = hold(folder.path())?;
        Ok(Self { folder, _held })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// What cannot be removed stays.
fn remove_left(parent: &Path, prefix: &str) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named = |name: &str| name.starts_with(prefix);
    for entry in entries.filter(|it| it.file_name().to_str().is_some_and(named)) {
        let path = entry.path();
        let held = hold(&path);
        if held.is_ok_and(|held| held.is_some()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
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

    fn inside(parent: &Path) -> usize {
        fs::read_dir(parent).unwrap().count()
    }

    #[test]
    fn what_a_killed_process_left_goes_and_what_another_writes_to_stays() {
        let parent = tempfile::tempdir().unwrap();
        let begin = || Working::begin(parent.path()).unwrap();
        let killed = begin();
        fs::write(killed.path().join("sender.pcap"), "packets").unwrap();
        // Its locks end with a process.
        let Working { folder, _held } = killed;
        let left = folder.keep();
        drop(_held);
        let others = parent.path().join(".run-other.host-1");
        fs::create_dir(&others).unwrap();
        let first = begin();
        assert!(!left.exists());
        let second = begin();
        assert!(first.path().exists() && second.path().exists() && others.exists());
        drop((first, second));
        assert_eq!(inside(parent.path()), 1);
    }
}
