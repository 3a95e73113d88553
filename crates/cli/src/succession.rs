//! Handing over to a new version without a gap: the successor is begun while this process goes on,
//! and ends it once it is at work itself. Meanwhile what one has bundled the other leaves alone.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use nix::sys::signalfd::siginfo;
use nix::unistd::{ForkResult, Pid, fork, getppid};

/// Has the process id of the one that is succeeded.
const OF: &str = "PILLION_SUCCEEDS";

/// Begins what now has this program's name, with the same arguments.
pub fn begin_successor() -> Result<()> {
    let program = program()?;
    let mut successor = Command::new(&program);
    successor.args(env::args_os().skip(1));
    successor.env(OF, std::process::id().to_string());
    let begun = successor.status();
    let status = begun.with_context(|| format!("begin {}", program.display()))?;
    match status.success() {
        true => Ok(()),
        false => bail!("{} ended: {status}", program.display()),
    }
}

/// Is it a successor that sends this signal? It adds its process id, as `kill` does not.
pub fn is_successors(signal: &siginfo) -> bool {
    signal.ssi_code == libc::SI_QUEUE && signal.ssi_int == signal.ssi_pid.cast_signed()
}

/// The program's file, or that which has replaced it.
fn program() -> Result<PathBuf> {
    let path = env::current_exe().context("find this program")?;
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    Ok(OsString::from_vec(bytes.to_vec()).into())
}

static PREDECESSOR: OnceLock<Pid> = OnceLock::new();

/// The process that this one is to succeed.
pub fn predecessor() -> Option<Pid> {
    PREDECESSOR.get().copied()
}

/// Where this process is to succeed another: lets go of it, so that a service manager becomes the
/// parent and can wait for this one as for any main process. To be called while there is one thread.
pub fn leave_predecessor() -> io::Result<()> {
    let pid = env::var(OF).ok().and_then(|pid| pid.parse().ok());
    // It may have ended: the number may be another's by now.
    let Some(pid) = pid.map(Pid::from_raw).filter(|pid| *pid == getppid()) else {
        return Ok(());
    };
    let _ = PREDECESSOR.set(pid);
    // SAFETY: this process has a single thread, so the child may do as it likes.
    match unsafe { fork() }? {
        // SAFETY: leaves without running what was registered for its exit.
        ForkResult::Parent { .. } => unsafe { libc::_exit(0) },
        ForkResult::Child => Ok(()),
    }
}

/// Ends the process that this one succeeds.
pub fn take_over() {
    if let Some(predecessor) = predecessor() {
        let own = std::process::id() as usize;
        let value = libc::sigval {
            sival_ptr: std::ptr::without_provenance_mut(own),
        };
        // SAFETY: a plain system call; the value is a number, which nobody takes for an address.
        unsafe { libc::sigqueue(predecessor.as_raw(), libc::SIGTERM, value) };
    }
}
