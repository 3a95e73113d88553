//! Hand-over to a new version without a gap: this process starts the new process and continues until
//! that is ready and ends it. Segments that one process bundled pass the other one unchanged.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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

use crate::trial::Holdbacks;

/// Environment variable with the process id of the old process.
const OLD_PROCESS: &str = "PILLION_OLD_PROCESS";

/// Environment variable with that process id and the descriptor of a pipe. The new process writes its
/// process id there, and the pipe closes when it exits.
const PIPE: &str = "PILLION_HANDOVER_PIPE";

/// Environment variable with that process id, the descriptor of the map of requests, and its layout.
const REQUESTS: &str = "PILLION_REQUESTS";

/// Environment variable with that process id, and the comparisons of rules with a holdback as JSON.
const HOLDBACKS: &str = "PILLION_HOLDBACKS";

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Time until a new process must be ready: programs are verified in seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A hand-over, until the new process takes over or fails.
#[derive(Debug, Default)]
pub struct Handover {
    new_process: Option<NewProcess>,
    /// The last new process that was stopped; a signal from it may be pending.
    stopped: Option<Pid>,
}

#[derive(Debug)]
struct NewProcess {
    /// This process's child, until it forks the final process (`detach_from_old_process`).
    child: Option<Child>,
    /// Closes when the final process exits.
    pipe: PipeReader,
    /// The final process, once it has sent its id.
    process: Option<Process>,
    started_at: Instant,
}

/// A process and its pidfd, which remains valid after the id is reused.
#[derive(Debug)]
struct Process(Pid, OwnedFd);

impl Handover {
    /// Starts the program that now has the name of this one's file, with the same arguments and the
    /// requests of applications, and the comparisons of rules. Does not wait for it.
    pub fn start(&mut self, requests: &Requests, holdbacks: &Holdbacks) -> Result<()> {
        if self.new_process.is_some() {
            bail!("another hand-over is in progress");
        }
        let program = PROGRAM.get().context("find this program")?;
        let (pipe, write_end) = io::pipe().context("make a pipe")?;
        keep_exited_children().context("set SIGCHLD to its default")?;
        let own = std::process::id();
        let map = requests.map().as_raw_fd();
        let mut command = Command::new(program);
        command.args(env::args_os().skip(1));
        command.env(OLD_PROCESS, own.to_string());
        command.env(PIPE, format!("{own} {}", write_end.as_raw_fd()));
        command.env(REQUESTS, format!("{own} {map} {}", requests.layout()));
        let holdbacks = serde_json::to_string(holdbacks)?;
        command.env(HOLDBACKS, format!("{own} {holdbacks}"));
        inherit_files(&mut command, [write_end.as_fd(), requests.map()]);
        log::debug!("starting the new process {}", program.display());
        let child = command.spawn();
        self.new_process = Some(NewProcess {
            child: Some(child.with_context(|| format!("start {}", program.display()))?),
            pipe,
            process: None,
            started_at: Instant::now(),
        });
        Ok(())
    }

    /// Restarts a hand-over that is in progress, because the new process does not know the reloaded rules.
    pub fn restart(
        &mut self,
        allowed: Result<()>,
        requests: &Requests,
        holdbacks: &Holdbacks,
    ) -> Result<()> {
        if self.new_process.is_none() {
            return Ok(());
        }
        self.stop();
        allowed?;
        self.start(requests, holdbacks)
    }

    /// Returns true while a new process starts.
    pub fn is_in_progress(&self) -> bool {
        self.new_process.is_some()
    }

    /// Returns true if the signal is from the new process, and not from a stopped one.
    pub fn is_from_new_process(&self, signal: &siginfo) -> bool {
        let sender = signal.ssi_pid.cast_signed();
        let is_stopped = self.stopped.is_some_and(|it| it.as_raw_pid() == sender);
        self.new_process.is_some() && !is_stopped
    }

    /// Makes the new process reload its rules, after a SIGHUP that this process received too late.
    pub fn forward_reload(&mut self) {
        if let Some(new) = &mut self.new_process
            && new.receive_id(Duration::ZERO)
            && let Some(Process(_, process)) = &new.process
        {
            let _ = pidfd_send_signal(process, Signal::HUP);
        }
    }

    /// Checks the new process, if any.
    ///
    /// # Errors
    /// Why it failed; it is stopped then.
    pub fn check(&mut self) -> Result<()> {
        let Some(new) = &mut self.new_process else {
            return Ok(());
        };
        let checked = new.check();
        if checked.is_err() {
            self.stop();
        }
        checked
    }

    /// Stops the new process, if any.
    pub fn stop(&mut self) {
        if let Some(mut new) = self.new_process.take() {
            new.stop();
            self.stopped = new.process.map(|it| it.0);
        }
    }
}

impl NewProcess {
    fn check(&mut self) -> Result<()> {
        if let Some(child) = &mut self.child
            && let Some(status) = child.try_wait().context("wait for the new process")?
        {
            self.child = None;
            if !status.success() {
                bail!("the new process exited: {status}");
            }
        }
        if !self.receive_id(Duration::ZERO) {
            bail!("the new process exited");
        }
        if self.started_at.elapsed() > TIMEOUT {
            bail!(
                "the new process was not ready after {} s",
                TIMEOUT.as_secs()
            );
        }
        Ok(())
    }

    /// Receives the id of the final process, if it arrives in time; returns false once it has exited.
    fn receive_id(&mut self, timeout: Duration) -> bool {
        if !self.is_readable(timeout) {
            return true;
        }
        let mut id = [0; size_of::<i32>()];
        match self.pipe.read_exact(&mut id) {
            Ok(()) => {
                let process = Pid::from_raw(i32::from_ne_bytes(id));
                let open = |it| Some(Process(it, pidfd_open(it, PidfdFlags::empty()).ok()?));
                let process = process.and_then(open);
                // The id is not reused while the process has the pipe open.
                let is_alive = !self.is_readable(Duration::ZERO);
                self.process = process.filter(|_| is_alive);
                is_alive
            }
            Err(error) => error.kind() != ErrorKind::UnexpectedEof,
        }
    }

    /// Returns true if the pipe has data or is closed.
    fn is_readable(&self, timeout: Duration) -> bool {
        let mut fds = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut fds, Some(timeout)), Ok(1..))
    }

    fn stop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        // The child may have forked the final process just now; that sends its id.
        if self.process.is_none() {
            self.receive_id(Duration::from_secs(1));
        }
        if let Some(Process(_, process)) = &self.process {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

/// Keeps exited children until they are waited for, even if SIGCHLD was ignored at the start.
fn keep_exited_children() -> nix::Result<()> {
    // SAFETY: no handler is installed.
    unsafe { nix::sys::signal::signal(SIGCHLD, SigHandler::SigDfl) }.map(drop)
}

/// Makes the command inherit these files.
fn inherit_files(command: &mut Command, files: [BorrowedFd; 2]) {
    let files = files.map(|file| file.as_raw_fd());
    let clear_cloexec = move || {
        for file in files {
            // SAFETY: it is open in the parent of this process.
            let file = unsafe { BorrowedFd::borrow_raw(file) };
            fcntl_setfd(file, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: it only makes system calls.
    unsafe { command.pre_exec(clear_cloexec) };
}

/// Stores the path of this program's file, which a new version may replace. Must run at the start: the
/// kernel reports the new name of a file that was renamed.
pub fn remember_program() -> Result<()> {
    let path = env::current_exe().context("find this program")?;
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    let _ = PROGRAM.set(OsString::from_vec(bytes.to_vec()).into());
    Ok(())
}

/// Returns true if the program's file is not the one that this process runs, as after an upgrade.
pub fn is_program_replaced() -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino()));
    let Some((path, Ok(running))) = PROGRAM
        .get()
        .map(|path| (path, identity(Path::new("/proc/self/exe"))))
    else {
        return false;
    };
    identity(path).ok() != Some(running)
}

// The signal by which the new process ends the old one.

/// Returns true if the signal has its sender's process id as value, which `kill` does not add.
pub fn is_handover_signal(signal: &siginfo) -> bool {
    signal.ssi_code == libc::SI_QUEUE && signal.ssi_int == signal.ssi_pid.cast_signed()
}

/// Ends the old process by SIGTERM with this process's id; fails if it has exited.
pub fn end_process(process: BorrowedFd) -> io::Result<()> {
    let own = nix::unistd::Pid::this().as_raw();
    let info = SignalInfo {
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
    let info = &raw const info;
    // SAFETY: the system call only reads `info`, which lives until it returns.
    match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, libc::SIGTERM, info, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The kernel's `siginfo_t` of a queued signal, on 64-bit machines.
#[repr(C, align(8))]
struct SignalInfo {
    signo: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    pid: pid_t,
    uid: uid_t,
    value: usize,
    unused: [u64; 12],
}

const _: () = assert!(size_of::<SignalInfo>() == size_of::<libc::siginfo_t>());

// The new process: it detaches from the old one, and ends it when it is ready.

static OLD: OnceLock<OldProcess> = OnceLock::new();

#[derive(Debug)]
struct OldProcess {
    pid: nix::unistd::Pid,
    /// Pidfd, which remains valid after the id is reused.
    process: OwnedFd,
    /// Stays open until this process exits.
    _pipe: Option<File>,
    requests: Option<Requests>,
    holdbacks: Holdbacks,
}

/// Returns the old process of a hand-over.
pub fn old_process() -> Option<nix::unistd::Pid> {
    OLD.get().map(|it| it.pid)
}

/// Returns the requests of applications from the old process, if it passed them on.
pub fn inherited() -> Option<&'static Requests> {
    OLD.get()?.requests.as_ref()
}

/// Returns the comparisons of the old process; without any from a version with another format.
pub fn inherited_holdbacks() -> Holdbacks {
    OLD.get().map(|it| it.holdbacks.clone()).unwrap_or_default()
}

/// Checks that the old process of a hand-over still runs.
///
/// # Errors
/// If it has exited: this process must exit as well.
pub fn check_old_process() -> Result<()> {
    let Some(old) = OLD.get() else {
        return Ok(());
    };
    let process = old.process.as_fd();
    let mut fds = [PollFd::new(process, PollFlags::POLLIN)];
    if let Ok(1..) = poll(&mut fds, Some(Duration::ZERO)) {
        bail!("the old process of the hand-over has exited");
    }
    Ok(())
}

/// Detaches the new process of a hand-over from the old one, so that the service manager becomes its
/// parent and can wait for it as the main process. Must run while there is one thread.
///
/// # Errors
/// If the old process has exited.
pub fn detach_from_old_process() -> Result<()> {
    let pid = env::var(OLD_PROCESS).ok().and_then(|pid| pid.parse().ok());
    let Some(pid) = pid.and_then(Pid::from_raw) else {
        return Ok(());
    };
    let process = pidfd_open(pid, PidfdFlags::empty());
    let pid = nix::unistd::Pid::from_raw(pid.as_raw_pid());
    // If it has exited, the id may belong to another process.
    if pid != getppid() {
        bail!("{OLD_PROCESS}={pid} is not the parent of this process, or it has exited");
    }
    let process = process?;
    let pipe = variable_of(PIPE, pid).and_then(|number| inherited_file(&number));
    let mut pipe = pipe.map(File::from);
    let requests = variable_of(REQUESTS, pid).and_then(|text| {
        let (map, layout) = text.split_once(' ')?;
        Some(Requests::new(inherited_file(map)?, layout.to_owned()))
    });
    let holdbacks = variable_of(HOLDBACKS, pid);
    let holdbacks = holdbacks.and_then(|text| serde_json::from_str(&text).ok());
    // SAFETY: this process has a single thread.
    match unsafe { fork() }? {
        // SAFETY: exits without running exit handlers.
        ForkResult::Parent { .. } => unsafe { libc::_exit(0) },
        ForkResult::Child => {
            if let Some(pipe) = &mut pipe {
                pipe.write_all(&nix::unistd::Pid::this().as_raw().to_ne_bytes())?;
            }
            let _ = OLD.set(OldProcess {
                pid,
                process,
                _pipe: pipe,
                requests,
                holdbacks: holdbacks.unwrap_or_default(),
            });
            Ok(())
        }
    }
}

/// Returns a variable that the parent has set. The value starts with its process id, because an older
/// version may pass on its own parent's variable.
fn variable_of(variable: &str, parent: nix::unistd::Pid) -> Option<String> {
    let text = env::var(variable).ok()?;
    let value = text.strip_prefix(&format!("{parent} "))?;
    Some(value.to_owned())
}

/// Returns a file that the parent left open.
fn inherited_file(number: &str) -> Option<OwnedFd> {
    let number: RawFd = number.parse().ok().filter(|it| *it > 2)?;
    // SAFETY: the parent opened it, and nothing else uses it here.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_setfd(file, FdFlags::CLOEXEC).ok()?;
    // SAFETY: fcntl has just succeeded, so it is open.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Ends the old process of a hand-over, if any.
///
/// # Errors
/// As [`check_old_process`].
pub fn take_over() -> Result<()> {
    check_old_process()?;
    match OLD.get() {
        Some(old) => end_process(old.process.as_fd()).context("end the old process"),
        None => Ok(()),
    }
}
