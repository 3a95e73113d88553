//! One run in a lab kernel, its folder, and the stored files of a failed run.

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

use super::{EngineError, Image, Job, Machine, ProgramExit, RESULTS};
use crate::lock::{RunLock, lock, lock_parent};
use crate::run::{FAILED_SUFFIX, PARTIAL_SUFFIX, RUN_FILE, failed_path};
use crate::settings::experiment::{Engine, Run};
use crate::{PROGRAM, kernel_release};

/// Path of the run's file inside the kernel.
const GUEST_RUN_FILE: &str = "/etc/pillion/run.toml";
/// Name of the run's folder inside the kernel.
const GUEST_RUN_FOLDER: &str = "run";

/// Makes one run of an experiment in a lab kernel, by `pillion-lab run-one` inside. `image` has
/// pillion, version `pillion`, as init. The run's files go to `folder`, which must not exist; it
/// exists afterwards only if the run succeeded.
///
/// Calls `on_progress` with the virtual time. Setting `stop` ends the run and leaves no files.
///
/// # Errors
/// [`RunFailure`], for the reasons of [`super::RunningKernel::wait`]. [`EngineError::GuestFailed`]
/// with the run's own message if the run failed.
pub fn run_virtually(
    machine: &Machine,
    image: &Image,
    pillion: &str,
    run: &Run,
    folder: &Path,
    stop: &AtomicBool,
    mut on_progress: impl FnMut(Duration),
) -> Result<(), RunFailure> {
    let parent = folder.parent().unwrap_or(Path::new("."));
    let out = WorkingFolder::create(parent)
        .map_err(EngineError::system("make a folder for the results"))?;
    let mut image = image.clone();
    image.add_text(GUEST_RUN_FILE, &run.to_text());
    image.set_job(&job(machine));
    let (started, clock) = (SystemTime::now(), Instant::now());
    let output = OutputBuffer::default();
    let running = machine.start(
        &image,
        Some(out.path()),
        Box::new(output.clone()),
        Box::new(output.clone()),
    )?;
    let console = running.console();
    let mut virtual_time = Duration::ZERO;
    let ended = running.wait(stop, |time| {
        virtual_time = time;
        on_progress(time);
    });
    let error = match ended {
        Ok(ProgramExit::Exited(0)) => {
            let whole = out.path().join(GUEST_RUN_FOLDER);
            let facts = HostFacts::gather(machine, pillion, started, clock.elapsed(), virtual_time);
            return fs::write(whole.join(HOST_FILE), facts.to_json())
                .and_then(|()| fs::rename(&whole, folder))
                .map_err(|error| EngineError::system("store the run's folder")(error).into());
        }
        Err(EngineError::Stopped) => return Err(EngineError::Stopped.into()),
        Ok(ending) => EngineError::GuestFailed(output.last_line_or(ending)),
        Err(error) => error,
    };
    let files = FailedRunFiles {
        inside: &out.path().join(GUEST_RUN_FOLDER),
        run: &run.to_text(),
        error: &error.to_string(),
        console: &console.text(),
    };
    let files = Some(files.store(folder));
    Err(RunFailure { error, files })
}

/// Returns pillion's own job: make the run.
fn job(machine: &Machine) -> Job {
    let folder = Path::new(RESULTS).join(GUEST_RUN_FOLDER);
    let made_by = Engine::Virtual.to_string();
    let mut arguments = ["run-one", "--engine", &made_by].map(String::from).to_vec();
    if let Some(hash) = machine.kernel.hash() {
        arguments.extend(["--lab-kernel", hash].map(String::from));
    }
    arguments.extend([
        GUEST_RUN_FILE.to_owned(),
        folder.to_string_lossy().into_owned(),
    ]);
    Job {
        program: "/init".to_owned(),
        arguments,
        ..Job::default()
    }
}

/// Output of a program.
#[derive(Debug, Clone, Default)]
struct OutputBuffer(Arc<Mutex<Vec<u8>>>);

impl OutputBuffer {
    /// Returns the program's last line of output, or its exit status.
    fn last_line_or(&self, ending: ProgramExit) -> String {
        let output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let output = String::from_utf8_lossy(&output);
        let last = output.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or_else(
            || ending.to_string(),
            |line| {
                let reason = line
                    .strip_prefix(PROGRAM)
                    .and_then(|it| it.strip_prefix(": "))
                    .map(|it| it.strip_prefix("error: ").unwrap_or(it));
                reason.unwrap_or(line).to_owned()
            },
        )
    }
}

impl Write for OutputBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        output.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The file with facts about the host of a run: the only file in which two equal runs may differ.
pub const HOST_FILE: &str = "host.json";

/// Host, versions and times of a run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct HostFacts {
    /// pillion's version, with its commit.
    pillion: String,
    /// Start of the run, in seconds since 1970.
    started_at_s: u64,
    /// Real time of the run, in seconds.
    real_s: f64,
    /// Virtual time from the kernel's start to its last report, in seconds.
    virtual_s: f64,
    /// Virtual seconds per real second.
    speed: f64,
    /// The release of the host's kernel.
    host_kernel: String,
    /// The name of the host's processor.
    processor: String,
    /// Memory of the lab kernel in MiB.
    memory_mib: u32,
    /// The lab kernel's build: its release, source, patches and configuration.
    lab_kernel: BTreeMap<&'static str, String>,
}

impl HostFacts {
    fn gather(
        machine: &Machine,
        pillion: &str,
        started: SystemTime,
        real: Duration,
        virtual_time: Duration,
    ) -> Self {
        let since = started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (real_s, virtual_s) = (real.as_secs_f64(), virtual_time.as_secs_f64());
        Self {
            pillion: pillion.to_owned(),
            started_at_s: since.as_secs(),
            real_s,
            virtual_s,
            speed: virtual_s / real_s,
            host_kernel: kernel_release(),
            processor: processor(),
            memory_mib: machine.memory_mib,
            lab_kernel: machine.kernel.build_info(),
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

/// Reason of a failed run, and its stored files.
#[derive(Debug, thiserror::Error)]
pub struct RunFailure {
    /// Reason of the failure.
    #[source]
    pub error: EngineError,
    /// The folder with the failed run's files; `None` if there are none.
    pub files: Option<io::Result<PathBuf>>,
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.files {
            Some(Ok(folder)) => {
                write!(f, "{}; see {} for its files", self.error, folder.display())
            }
            Some(Err(lost)) => write!(f, "{}; its files could not be stored: {lost}", self.error),
            None => self.error.fmt(f),
        }
    }
}

impl From<EngineError> for RunFailure {
    fn from(error: EngineError) -> Self {
        Self { error, files: None }
    }
}

/// File of a failed run's folder with all messages of its kernel.
const CONSOLE_FILE: &str = "console.txt";

/// Files of a failed run.
pub(super) struct FailedRunFiles<'a> {
    /// The run's folder inside, if it exists, without the suffix of its name.
    pub inside: &'a Path,
    /// The run's file, with its seed.
    pub run: &'a str,
    pub error: &'a str,
    pub console: &'a str,
}

impl FailedRunFiles<'_> {
    /// Moves the files of the failed run to a folder next to `folder`, which is reserved for a
    /// complete run.
    pub fn store(&self, folder: &Path) -> io::Result<PathBuf> {
        let [broken, part] =
            [FAILED_SUFFIX, PARTIAL_SUFFIX].map(|state| with_suffix(self.inside, state));
        let there = [&*broken, &*part, self.inside];
        let inside = match there.into_iter().find(|folder| folder.is_dir()) {
            Some(there) => there,
            None => {
                fs::create_dir(&broken)?;
                &broken
            }
        };
        fs::write(inside.join(CONSOLE_FILE), self.console)?;
        // The run itself has written these files, unless its kernel crashed.
        for (file, text) in [(RUN_FILE, self.run), (FAILED_SUFFIX, self.error)] {
            let file = inside.join(file);
            if !file.exists() {
                fs::write(file, format!("{}\n", text.trim_end()))?;
            }
        }
        let stored = failed_path(folder);
        fs::rename(inside, &stored)?;
        Ok(stored)
    }
}

fn with_suffix(folder: &Path, state: &str) -> PathBuf {
    PathBuf::from(format!("{}.{state}", folder.display()))
}

// The folder for a kernel's results, until they move to their own folder.

/// A folder that this value owns and removes when it is dropped.
pub(super) struct WorkingFolder {
    folder: TempDir,
    _lock: RunLock,
}

impl WorkingFolder {
    /// Creates a folder below `parent`, and removes folders of killed processes of this host.
    pub fn create(parent: &Path) -> io::Result<Self> {
        // Locks may only work on one host, and other hosts may share the folder.
        let host = gethostname().unwrap_or_default();
        let prefix = format!(".run-{}-", host.to_string_lossy());
        let lock_parent = lock_parent(parent)?;
        if lock_parent.is_some() {
            remove_stale(parent, &prefix);
        }
        let folder = Builder::new().prefix(&prefix).tempdir_in(parent)?;
        let _lock = lock(folder.path())?;
        Ok(Self { folder, _lock })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes stale folders; ignores errors.
fn remove_stale(parent: &Path, prefix: &str) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let has_prefix = |name: &str| name.starts_with(prefix);
    for entry in entries.filter(|it| it.file_name().to_str().is_some_and(has_prefix)) {
        let path = entry.path();
        let lock = lock(&path);
        if lock.is_ok_and(|lock| lock.is_some()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores a failed run whose folder inside has the suffix `state` and these files. Returns a
    /// function that reads a stored file.
    fn stored(state: &str, files: &[(&str, &str)]) -> impl Fn(&str) -> String {
        let store = tempfile::tempdir().unwrap();
        let inside = store.path().join(".run-1/run");
        fs::create_dir(store.path().join(".run-1")).unwrap();
        for (file, text) in files {
            let folder = with_suffix(&inside, state);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), text).unwrap();
        }
        let files = FailedRunFiles {
            inside: &inside,
            run: "seed = 7\n",
            error: "the lab kernel ended",
            console: "[    0.0] Linux\n",
        };
        let folder = files.store(&store.path().join("bundled")).unwrap();
        assert_eq!(folder, store.path().join("bundled.broken"));
        move |file| {
            let _store = &store;
            fs::read_to_string(folder.join(file)).unwrap()
        }
    }

    #[test]
    fn early_crash_stores_console_and_run() {
        let text = stored(PARTIAL_SUFFIX, &[]);
        assert_eq!(text(CONSOLE_FILE), "[    0.0] Linux\n");
        assert_eq!(text(RUN_FILE), "seed = 7\n");
        assert_eq!(text(FAILED_SUFFIX), "the lab kernel ended\n");
    }

    #[test]
    fn late_crash_stores_partial_run() {
        let text = stored(PARTIAL_SUFFIX, &[("sender.pcap", "packets")]);
        assert_eq!(text("sender.pcap"), "packets");
        assert_eq!(text(FAILED_SUFFIX), "the lab kernel ended\n");
    }

    #[test]
    fn repeated_failures_store_latest_files() {
        let store = tempfile::tempdir().unwrap();
        let store_failure = |error: &str| {
            let inside = store.path().join(".run-1/run");
            fs::create_dir_all(store.path().join(".run-1")).unwrap();
            let files = FailedRunFiles {
                inside: &inside,
                run: "seed = 7\n",
                error,
                console: "",
            };
            let folder = files.store(&store.path().join("plain,loss=0.5")).unwrap();
            fs::read_to_string(folder.join(FAILED_SUFFIX)).unwrap()
        };
        for error in ["no such sysctl\n", "the lab kernel ended\n", "again\n"] {
            assert_eq!(store_failure(error), error);
        }
    }

    #[test]
    fn run_error_file_is_not_overwritten() {
        let text = stored(
            FAILED_SUFFIX,
            &[(FAILED_SUFFIX, "no such sysctl\n"), (RUN_FILE, "its own\n")],
        );
        assert_eq!(text(FAILED_SUFFIX), "no such sysctl\n");
        assert_eq!(text(RUN_FILE), "its own\n");
        assert_eq!(text(CONSOLE_FILE), "[    0.0] Linux\n");
    }

    fn inside(parent: &Path) -> usize {
        fs::read_dir(parent).unwrap().count()
    }

    #[test]
    fn stale_folder_is_removed_and_used_one_remains() {
        let parent = tempfile::tempdir().unwrap();
        let create = || WorkingFolder::create(parent.path()).unwrap();
        let killed = create();
        fs::write(killed.path().join("sender.pcap"), "packets").unwrap();
        // The kernel releases a process's locks when the process exits.
        let WorkingFolder { folder, _lock } = killed;
        let files = folder.keep();
        drop(_lock);
        let others = parent.path().join(".run-other.host-1");
        fs::create_dir(&others).unwrap();
        let first = create();
        assert!(!files.exists());
        let second = create();
        assert!(first.path().exists() && second.path().exists() && others.exists());
        drop((first, second));
        assert_eq!(inside(parent.path()), 1);
    }
}
