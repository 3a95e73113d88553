//! Container daemon whose processes, mounts and cgroups do not outlive the test.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_lab::Namespace;

use crate::containers::{Beside, Cgroups};

/// Daemon in its own mount and PID namespaces. Its containers and mounts end with it or with the
/// test's thread, however these end.
pub struct Daemon {
    process: Child,
    log: PathBuf,
    /// Unique name of the cgroup for the containers.
    pub cgroup: String,
}

impl Daemon {
    pub fn begin(host: &Beside, cgroups: Cgroups, namespace: &Namespace, words: &[&str]) -> Self {
        let log = host.path().join("daemon.log");
        let mut unshare = namespace.command("unshare");
        unshare.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        unshare.args(["sh", "-c", &host.script(cgroups), "sh"]);
        unshare.args(words);
        unshare.stdout(fs::File::create(&log).unwrap());
        unshare.stderr(fs::File::options().append(true).open(&log).unwrap());
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            // `unshare` does not exit on gentler signals.
            unshare.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?));
        }
        Self {
            process: unshare.spawn().unwrap(),
            log,
            cgroup: cgroup_of(host),
        }
    }

    /// Waits until the daemon answers; false if it exits first or takes too long.
    pub fn answers(&mut self, mut is_answered: impl FnMut() -> bool) -> bool {
        const LIMIT: Duration = Duration::from_secs(30);
        let begun = Instant::now();
        while begun.elapsed() < LIMIT && self.process.try_wait().unwrap().is_none() {
            if is_answered() {
                return true;
            }
            thread::sleep(Duration::from_millis(100));
        }
        false
    }

    /// Returns the last line of its log.
    pub fn said(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        const LIMIT: Duration = Duration::from_secs(10);
        // Kill the PID namespace's first process, which takes all others with it; then `unshare`
        // exits.
        let pid = self.process.id();
        let first = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        match first.ok().and_then(|it| it.trim().parse().ok()) {
            Some(first) => drop(kill(Pid::from_raw(first), Signal::SIGKILL)),
            None => drop(self.process.kill()),
        }
        let _ = self.process.wait();
        let begun = Instant::now();
        let is_there = |mount: &PathBuf| mount.join(&self.cgroup).exists();
        for mount in hierarchies().into_iter().filter(is_there) {
            let cgroup = mount.join(&self.cgroup);
            // The cgroup's processes may still be exiting.
            while !remove(&cgroup) && begun.elapsed() < LIMIT {
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Returns the name of the cgroup for containers of an environment.
pub fn cgroup_of(host: &Beside) -> String {
    let unique = host.path().file_name().unwrap().to_string_lossy();
    format!("containers{unique}")
}

/// Returns the mount points of all cgroup hierarchies, of both versions.
fn hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        let is_cgroups = words.get(2)?.starts_with("cgroup");
        is_cgroups.then(|| PathBuf::from(words[1]))
    });
    mounts.collect()
}

fn remove(cgroup: &Path) -> bool {
    let inner = fs::read_dir(cgroup).into_iter().flatten().flatten();
    for folder in inner.filter(|it| it.path().is_dir()) {
        remove(&folder.path());
    }
    fs::remove_dir(cgroup).is_ok()
}
