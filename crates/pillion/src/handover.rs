//! Handing over to a new version without a gap: the successor is begun while this process goes on,
//! and ends it once it is at work itself. Meanwhile what one has bundled the other leaves alone.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libc::{c_int, pid_t, uid_t};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::SigHandler;
use nix::sys::signal::Signal::SIGCHLD;
use nix::sys::signalfd::siginfo;
use nix::unistd::{ForkResult, Uid, fork, getppid};
use pillion_bpf::Requests;
use pillion_bpf::host::interruption::poll;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Has the process id of the one that is succeeded.
const OF: &str = "PILLION_SUCCEEDS";

/// Has the same, and the number of the file by which the successor tells its process id; it ends with
/// it.
const LIFE: &str = "PILLION_SUCCESSOR_TELLS";

/// Has the same, the number of the file that is the map of requests, and the layout of what is in it.
const REQUESTS: &str = "PILLION_REQUESTS";

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// How long a successor may take to be at work: programs are verified in seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The successor that was begun, if one was, until it has taken over or failed.
#[derive(Debug, Default)]
pub struct Handover {
    begun: Option<Begun>,
    /// The last one that was not to take over any more: it may have said before that it does.
    given_up: Option<Pid>,
}

#[derive(Debug)]
struct Begun {
    /// This process's child, until that has left its work to one of its own (`leave_predecessor`).
    first: Option<Child>,
    life: PipeReader,
    /// Who has taken over from the first, once that is told.
    process: Option<Process>,
    since: Instant,
}

/// A process, and the handle that nobody else has once it has ended.
#[derive(Debug)]
struct Process(Pid, OwnedFd);

impl Handover {
    /// Begins what now has this program's name, with the same arguments and what applications asked,
    /// and does not wait for it.
    pub fn begin(&mut self, requests: &Requests) -> Result<()> {
        if self.begun.is_some() {
            bail!("one was begun before, and is not at work yet");
        }
        let program = PROGRAM.get().context("find this program")?;
        let (life, tells) = io::pipe().context("make a pipe")?;
        wait_for_children().context("hear of its end")?;
        let own = std::process::id();
        let map = requests.map().as_raw_fd();
        let mut successor = Command::new(program);
        successor.args(env::args_os().skip(1));
        successor.env(OF, own.to_string());
        successor.env(LIFE, format!("{own} {}", tells.as_raw_fd()));
        successor.env(REQUESTS, format!("{own} {map} {}", requests.layout()));
        leave_open(&mut successor, [tells.as_fd(), requests.map()]);
        let first = successor.spawn();
        self.begun = Some(Begun {
            first: Some(first.with_context(|| format!("begin {}", program.display()))?),
            life,
            process: None,
            since: Instant::now(),
        });
        Ok(())
    }

    /// Begins another, where one is not at work yet: it does not know what has changed since.
    pub fn begin_again(&mut self, may: Result<()>, requests: &Requests) -> Result<()> {
        if self.begun.is_none() {
            return Ok(());
        }
        self.give_up();
        may?;
        self.begin(requests)
    }

    /// Is the signal from it? From one that was given up there may be one, too.
    pub fn has_sent(&self, signal: &siginfo) -> bool {
        let sender = signal.ssi_pid.cast_signed();
        let is_given_up = self.given_up.is_some_and(|it| it.as_raw_pid() == sender);
        self.begun.is_some() && !is_given_up
    }

    /// Has it read its rules again, once it has taken over: what this process was told came too late.
    pub fn have_it_read_again(&mut self) {
        if let Some(begun) = &mut self.begun
            && begun.hear(Duration::ZERO)
            && let Some(Process(_, process)) = &begun.process
        {
            let _ = pidfd_send_signal(process, Signal::HUP);
        }
    }

    /// Looks after it; an error says why there is none any more.
    pub fn look(&mut self) -> Result<()> {
        let Some(begun) = &mut self.begun else {
            return Ok(());
        };
        let looked = begun.look();
        if looked.is_err() {
            self.give_up();
        }
        looked
    }

    /// Ends it.
    pub fn give_up(&mut self) {
        if let Some(mut begun) = self.begun.take() {
            begun.end();
            self.given_up = begun.process.map(|it| it.0);
        }
    }
}

impl Begun {
    fn look(&mut self) -> Result<()> {
        if let Some(first) = &mut self.first
            && let Some(status) = first.try_wait().context("wait for it")?
        {
            self.first = None;
            if !status.success() {
                bail!("it ended: {status}");
            }
        }
        if !self.hear(Duration::ZERO) {
            bail!("it ended");
        }
        if self.since.elapsed() > PATIENCE {
            bail!("it was not at work after {} s", PATIENCE.as_secs());
        }
        Ok(())
    }

    /// Hears which process it is, if that is told in time; false once there is none.
    fn hear(&mut self, patience: Duration) -> bool {
        if !self.has_news(patience) {
            return true;
        }
        let mut told = [0; size_of::<i32>()];
        match self.life.read_exact(&mut told) {
            Ok(()) => {
                let process = Pid::from_raw(i32::from_ne_bytes(told));
                let open = |it| Some(Process(it, pidfd_open(it, PidfdFlags::empty()).ok()?));
                let process = process.and_then(open);
                // As long as it has the pipe, its number is nobody else's.
                let lives = !self.has_news(Duration::ZERO);
                self.process = process.filter(|_| lives);
                lives
            }
            Err(error) => error.kind() != ErrorKind::UnexpectedEof,
        }
    }

    /// Is there something to read, be it that there will be no more?
    fn has_news(&self, patience: Duration) -> bool {
        let mut fds = [PollFd::new(self.life.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut fds, Some(patience)), Ok(1..))
    }

    fn end(&mut self) {
        if let Some(first) = &mut self.first {
            let _ = first.kill();
            let _ = first.wait();
        }
        // The first may have left it to another at this moment, which then tells.
        if self.process.is_none() {
            self.hear(Duration::from_secs(1));
        }
        if let Some(Process(_, process)) = &self.process {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

/// Has children stay until they are waited for, even if whoever began this process ignores theirs.
fn wait_for_children() -> nix::Result<()> {
    // SAFETY: no handler runs.
    unsafe { nix::sys::signal::signal(SIGCHLD, SigHandler::SigDfl) }.map(drop)
}

/// Has the command's process keep files that would be closed.
fn leave_open(command: &mut Command, files: [BorrowedFd; 2]) {
    let files = files.map(|file| file.as_raw_fd());
    let keep = move || {
        for file in files {
            // SAFETY: open in the process that this one was made from.
            let file = unsafe { BorrowedFd::borrow_raw(file) };
            fcntl_setfd(file, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: system calls alone.
    unsafe { command.pre_exec(keep) };
}

/// The name of the program's file, under which another may be put. To be asked at the start: once the
/// file is called otherwise, the kernel would tell that name.
pub fn remember_program() -> Result<()> {
    let path = env::current_exe().context("find this program")?;
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    let _ = PROGRAM.set(OsString::from_vec(bytes.to_vec()).into());
    Ok(())
}

// The signal by which a successor ends the one that it succeeds, told from others.

/// Is it a successor that sends this signal? It adds its process id, as `kill` does not.
pub fn is_successors(signal: &siginfo) -> bool {
    signal.ssi_code == libc::SI_QUEUE && signal.ssi_int == signal.ssi_pid.cast_signed()
}

/// Ends a process as its successor; an error if it has ended.
pub fn end(process: BorrowedFd) -> io::Result<()> {
    let own = nix::unistd::Pid::this().as_raw();
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
    let process = process.as_raw_fd();
    let said = &raw const said;
    // SAFETY: a system call that reads a structure of the kernel's, which lives across it.
    match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, libc::SIGTERM, said, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
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

// The new process: it leaves the old one, and ends it when it is ready itself.

static PREDECESSOR: OnceLock<Predecessor> = OnceLock::new();

#[derive(Debug)]
struct Predecessor {
    pid: nix::unistd::Pid,
    /// It alone, whoever has its number once it has ended.
    process: OwnedFd,
    /// Open as long as this process lives.
    _life: Option<File>,
    requests: Option<Requests>,
}

/// The process that this one is to succeed.
pub fn predecessor() -> Option<nix::unistd::Pid> {
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
    let Some(pid) = pid.and_then(Pid::from_raw) else {
        return Ok(());
    };
    let process = pidfd_open(pid, PidfdFlags::empty());
    let pid = nix::unistd::Pid::from_raw(pid.as_raw_pid());
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
                life.write_all(&nix::unistd::Pid::this().as_raw().to_ne_bytes())?;
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
fn told(variable: &str, parent: nix::unistd::Pid) -> Option<String> {
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
            end(predecessor.process.as_fd()).context("end the one that is succeeded")
        }
        None => Ok(()),
    }
}
