//! Start, run and exit of `run` and `attach`: a test for each row of docs/operate/service.md that `run.rs`
//! and `leftovers.rs` do not cover.

mod broken_output;
mod cgroups;
mod setuid;
mod signals;
mod start_and_reload;
mod terminal;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;

use crate::common::*;

/// Child process that is killed at the end of the test.
pub struct ChildGuard(pub Child);

impl ChildGuard {
    /// Starts a command that is killed after two minutes, so that no test waits for ever for its
    /// output.
    pub fn spawn(command: &mut Command) -> Self {
        // SAFETY: alarm() is async-signal-safe; the alarm outlives exec.
        unsafe {
            command.pre_exec(|| {
                libc::alarm(120);
                Ok(())
            });
        }
        Self(command.spawn().expect("it starts"))
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().cast_signed())
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it runs");
    }

    /// Waits for the exit. Detaching from a device can take seconds while many network namespaces
    /// are destroyed.
    pub fn wait_exit(&mut self) -> ExitStatus {
        let mut status = None;
        within(Duration::from_secs(60), "the process exits", || {
            status = self.0.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("it has exited")
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // The command of a killed pillion would survive.
        if let Some(cgroup) = cgroup_of(self.0.id()) {
            let _ = fs::write(cgroup.join("cgroup.kill"), "1");
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Builds a `pillion run` with a loopback device.
pub fn run(words: &[&str]) -> Command {
    let mut command = pillion_in(&namespace_with_loopback(), &["run", "--dev", "lo"]);
    command.arg("--").args(words);
    command
}

/// Waits for the command of a `pillion run` and returns its PID.
pub fn command_pid(pillion: &ChildGuard) -> Pid {
    let mut found = None;
    eventually("the command runs", || {
        let cgroup = cgroup_of(pillion.0.id());
        let pids = cgroup.and_then(|it| fs::read_to_string(it.join("cgroup.procs")).ok());
        found = pids.and_then(|pids| pids.lines().next()?.parse().ok());
        found.is_some()
    });
    Pid::from_raw(found.expect("it runs"))
}

/// Returns the state of a process, as `ps` shows it.
pub fn state(process: Pid) -> char {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let fields = stat.rsplit_once(") ").expect("a name").1;
    fields.chars().next().expect("a state")
}

/// Makes a command ignore these signals from its start.
pub fn ignore_signals(command: &mut Command, signals: &'static [Signal]) {
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(move || {
            for ignored in signals {
                signal(*ignored, SigHandler::SigIgn)?;
            }
            Ok(())
        });
    }
}

/// Returns the child cgroups of a cgroup.
pub fn child_cgroups(cgroup: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cgroup).expect("a cgroup").flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.is_dir()).collect()
}

/// Cgroup in which the test starts its pillions.
pub struct CgroupSandbox(PathBuf);

impl CgroupSandbox {
    pub fn create(name: &str) -> Self {
        let path = own_cgroup().join(format!("lifecycle-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a cgroup");
        Self(path)
    }

    /// Starts a command in this cgroup.
    pub fn assign(&self, command: &mut Command) {
        let procs_file = self.0.join("cgroup.procs");
        // SAFETY: the test's other threads hold no lock that this needs for long.
        unsafe {
            command.pre_exec(move || fs::write(&procs_file, "0"));
        }
    }

    /// Returns the cgroup's folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns its child cgroups.
    pub fn children(&self) -> Vec<PathBuf> {
        child_cgroups(&self.0)
    }

    /// Returns the processes in it and in its children, in this order.
    pub fn processes(&self) -> Vec<Pid> {
        let all = std::iter::once(self.0.clone()).chain(self.children());
        let texts = all.filter_map(|it| fs::read_to_string(it.join("cgroup.procs")).ok());
        let text: String = texts.collect();
        let pids = text.lines().map(|line| line.parse().expect("a PID"));
        pids.map(Pid::from_raw).collect()
    }
}

impl Drop for CgroupSandbox {
    fn drop(&mut self) {
        let started = Instant::now();
        // Killed processes leave the cgroup a moment later.
        while self.0.exists() && started.elapsed() < Duration::from_secs(5) {
            for folder in self.children() {
                let _ = fs::remove_dir(folder);
            }
            let _ = fs::remove_dir(&self.0);
            thread::sleep(Duration::from_millis(20));
        }
    }
}
