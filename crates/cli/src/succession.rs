//! Handing over to a new version without a gap: the successor is begun while this process goes on,
//! and ends it once it is at work itself. Meanwhile what one has bundled the other leaves alone.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};

/// Has the process id of the one that is succeeded.
const OF: &str = "PILLION_SUCCEEDS";

/// The successor of this process, once there is one.
#[derive(Default)]
pub struct Successor(Option<Child>);

impl Successor {
    /// Begins what now has this program's name, with the same arguments.
    pub fn begin(&mut self) -> Result<()> {
        if self.0.is_some() {
            return Ok(());
        }
        let program = program()?;
        let mut successor = Command::new(&program);
        successor.args(env::args_os().skip(1));
        successor.env(OF, std::process::id().to_string());
        let begun = successor.spawn();
        self.0 = Some(begun.with_context(|| format!("begin {}", program.display()))?);
        Ok(())
    }

    /// Is it this process?
    pub fn is(&self, pid: u32) -> bool {
        self.0.as_ref().is_some_and(|child| child.id() == pid)
    }

    /// How it ended, if it did: this process goes on.
    pub fn has_failed(&mut self) -> Option<ExitStatus> {
        let status = self.0.as_mut()?.try_wait().ok()??;
        self.0 = None;
        Some(status)
    }
}

/// The program's file, or that which has replaced it.
fn program() -> Result<PathBuf> {
    let path = env::current_exe().context("find this program")?;
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    Ok(OsString::from_vec(bytes.to_vec()).into())
}

/// The process that this one is to succeed.
pub fn predecessor() -> Option<Pid> {
    let pid = env::var(OF).ok()?.parse().ok().map(Pid::from_raw);
    // It may have ended: the number may be another's by now.
    pid.filter(|pid| *pid == getppid())
}

/// Ends the process that this one succeeds.
pub fn take_over() {
    if let Some(predecessor) = predecessor() {
        let _ = kill(predecessor, Signal::SIGTERM);
    }
}
