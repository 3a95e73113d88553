//! What a process does that is to succeed another.

use std::env;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags};
use nix::unistd::{ForkResult, Pid, fork, getppid};
use pillion_bpf::Requests;
use pillion_bpf::host::interruption::poll;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{PidfdFlags, pidfd_open};

use super::{LIFE, OF, REQUESTS, signal};

static PREDECESSOR: OnceLock<Predecessor> = OnceLock::new();

#[derive(Debug)]
struct Predecessor {
    pid: Pid,
    /// It alone, whoever has its number once it has ended.
    process: OwnedFd,
    /// Open as long as this process lives.
    _life: Option<File>,
    requests: Option<Requests>,
}

/// The process that this one is to succeed.
pub fn predecessor() -> Option<Pid> {
    PREDECESSOR.get().map(|it| it.pid)
}

/// What applications asked of the one that is to be succeeded, unless that is too old to leave it.
pub fn inherited() -> Option<&'static Requests> {
    PREDECESSOR.get()?.requests.as_ref()
}

/// Whether the one is there that this process is to succeed, if it is to succeed one.
///
/// # Errors
/// If that has ended, with all that it was asked to do: this one is to end as well.
pub fn is_still_to_succeed() -> Result<()> {
    let Some(predecessor) = PREDECESSOR.get() else {
        return Ok(());
    };
    let process = predecessor.process.as_fd();
    let mut fds = [PollFd::new(process, PollFlags::POLLIN)];
    if let Ok(1..) = poll(&mut fds, Some(Duration::ZERO)) {
        bail!("the pillion that this one was to succeed has ended");
    }
    Ok(())
}

/// Where this process is to succeed another: lets go of it, so that a service manager becomes the
/// parent and can wait for this one as for any main process. To be called while there is one thread.
///
/// # Errors
/// If that has ended already, so that there is nothing to succeed.
pub fn leave_predecessor() -> Result<()> {
    let pid = env::var(OF).ok().and_then(|pid| pid.parse().ok());
    let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else {
        return Ok(());
    };
    let process = pidfd_open(pid, PidfdFlags::empty());
    let pid = Pid::from_raw(pid.as_raw_pid());
    // It may have ended: the number may be another's by now.
    if pid != getppid() {
        bail!("{OF}={pid}: that has ended, or it is not what has begun this process");
    }
    let process = process?;
    let life = told(LIFE, pid).and_then(|life| received(&life));
    let mut life = life.map(File::from);
    let requests = told(REQUESTS, pid).and_then(|text| {
        let (map, layout) = text.split_once(' ')?;
        Some(Requests::left(received(map)?, layout.to_owned()))
    });
    // SAFETY: this process has a single thread, so the child may do as it likes.
    match unsafe { fork() }? {
        // SAFETY: leaves without running what was registered for its exit.
        ForkResult::Parent { .. } => unsafe { libc::_exit(0) },
        ForkResult::Child => {
            if let Some(life) = &mut life {
                life.write_all(&Pid::this().as_raw().to_ne_bytes())?;
            }
            let _ = PREDECESSOR.set(Predecessor {
                pid,
                process,
                _life: life,
                requests,
            });
            Ok(())
        }
    }
}

/// What the parent says in a variable; one of an older version says nothing, and leaves what was
/// there.
fn told(variable: &str, parent: Pid) -> Option<String> {
    let text = env::var(variable).ok()?;
    let told = text.strip_prefix(&format!("{parent} "))?;
    Some(told.to_owned())
}

/// A file that was left open by the parent.
fn received(number: &str) -> Option<OwnedFd> {
    let number: RawFd = number.parse().ok().filter(|it| *it > 2)?;
    // SAFETY: the parent says that it is open, and nobody else here knows of it.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_setfd(file, FdFlags::CLOEXEC).ok()?;
    // SAFETY: it is open, as was just seen.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Ends the process that this one succeeds, if it succeeds one.
///
/// # Errors
/// As [`is_still_to_succeed`].
pub fn take_over() -> Result<()> {
    is_still_to_succeed()?;
    match PREDECESSOR.get() {
        Some(predecessor) => {
            signal::end(predecessor.process.as_fd()).context("end the one that is succeeded")
        }
        None => Ok(()),
    }
}
