//! Handing over to a new version without a gap: the successor is begun while this process goes on,
//! and ends it once it is at work itself. Meanwhile what one has bundled the other leaves alone.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libc::{c_int, pid_t, uid_t};
use nix::sys::signalfd::siginfo;
use nix::unistd::{ForkResult, Pid, Uid, fork, getppid};

/// Has the process id of the one that is succeeded.
const OF: &str = "PILLION_SUCCEEDS";

/// How long a successor may take to be at work: programs are verified in seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The successor that was begun, if one was, until it has taken over or failed.
#[derive(Debug, Default)]
pub struct Succession(Option<Begun>);

#[derive(Debug)]
struct Begun {
    /// This process's child, until that has left its work to one of its own (`leave_predecessor`).
    first: Option<Child>,
    since: Instant,
}

impl Succession {
    /// Begins what now has this program's name, with the same arguments, and does not wait for it.
    pub fn begin(&mut self) -> Result<()> {
        if self.0.is_some() {
            bail!("one was begun before, and is not at work yet");
        }
        let program = program()?;
        let mut successor = Command::new(&program);
        successor.args(env::args_os().skip(1));
        successor.env(OF, std::process::id().to_string());
        let begun = successor.spawn();
        self.0 = Some(Begun {
            first: Some(begun.with_context(|| format!("begin {}", program.display()))?),
            since: Instant::now(),
        });
        Ok(())
    }

    /// Looks after it; an error says why there is none any more.
    pub fn look(&mut self) -> Result<()> {
        let Some(begun) = &mut self.0 else {
            return Ok(());
        };
        if let Some(first) = &mut begun.first
            && let Some(status) = first.try_wait().context("wait for it")?
        {
            if !status.success() {
                self.0 = None;
                bail!("it ended: {status}");
            }
            begun.first = None;
        }
        if begun.since.elapsed() > PATIENCE {
            self.give_up();
            bail!("it was not at work after {} s", PATIENCE.as_secs());
        }
        Ok(())
    }

    /// Ends it, as far as it still is this process's child.
    pub fn give_up(&mut self) {
        if let Some(mut first) = self.0.take().and_then(|begun| begun.first) {
            let _ = first.kill();
            let _ = first.wait();
        }
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

static PREDECESSOR: OnceLock<Predecessor> = OnceLock::new();

#[derive(Debug)]
struct Predecessor {
    pid: Pid,
    /// It alone, whoever has its number once it has ended.
    process: OwnedFd,
}

/// The process that this one is to succeed.
pub fn predecessor() -> Option<Pid> {
    PREDECESSOR.get().map(|it| it.pid)
}

/// Where this process is to succeed another: lets go of it, so that a service manager becomes the
/// parent and can wait for this one as for any main process. To be called while there is one thread.
pub fn leave_predecessor() -> io::Result<()> {
    let pid = env::var(OF).ok().and_then(|pid| pid.parse().ok());
    let Some(pid) = pid.map(Pid::from_raw) else {
        return Ok(());
    };
    let process = pidfd(pid);
    // It may have ended: the number may be another's by now.
    if pid != getppid() {
        return Ok(());
    }
    let process = process?;
    let _ = PREDECESSOR.set(Predecessor { pid, process });
    // SAFETY: this process has a single thread, so the child may do as it likes.
    match unsafe { fork() }? {
        // SAFETY: leaves without running what was registered for its exit.
        ForkResult::Parent { .. } => unsafe { libc::_exit(0) },
        ForkResult::Child => Ok(()),
    }
}

/// A handle to a process.
fn pidfd(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just made it, and nobody else has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends the process that this one succeeds.
pub fn take_over() {
    let Some(predecessor) = PREDECESSOR.get() else {
        return;
    };
    let own = Pid::this().as_raw();
    let said = Said {
        signo: libc::SIGTERM,
        errno: 0,
        code: libc::SI_QUEUE,
        padding: 0,
        pid: own,
        uid: Uid::current().as_raw(),
        value: own as usize,
        unused: [0; 12],
    };
    let process = predecessor.process.as_raw_fd();
    let said = &raw const said;
    // SAFETY: a system call that reads a structure of the kernel's, which lives across it.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, libc::SIGTERM, said, 0) };
}

/// The kernel's `siginfo_t` of a queued signal, on 64-bit machines.
#[repr(C, align(8))]
struct Said {
    signo: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    pid: pid_t,
    uid: uid_t,
    value: usize,
    unused: [u64; 12],
}

const _: () = assert!(size_of::<Said>() == size_of::<libc::siginfo_t>());
