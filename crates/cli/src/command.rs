//! Runs a command that behaves as without pillion (docs/operate/service.md).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, raise, signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getpgid, getpgrp, tcgetpgrp, tcsetpgrp};
use pillion_bpf::host::interruption::retry;
use rustix::process::{WaitOptions, wait};

use crate::disposition::{ignore_file_limit_signal, is_ignored};
use crate::helper_process;

/// Logs why a command could not be started, and returns the exit code of shells for that.
pub fn report_spawn_error(command: &OsStr, error: &io::Error) -> ExitCode {
    let name = command.to_string_lossy();
    if error.kind() == io::ErrorKind::NotFound {
        log::error!("{name}: command not found");
        return ExitCode::from(127);
    }
    log::error!("{name}: {error}");
    ExitCode::from(126)
}

// Signals to pillion are forwarded to the command, and pillion exits with it. docs/operate/service.md
// lists them.

/// Signals that a process causes itself, which are not forwarded.
const SYNCHRONOUS: [Signal; 10] = [
    Signal::SIGABRT,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGPIPE,
    Signal::SIGSEGV,
    Signal::SIGSYS,
    Signal::SIGTRAP,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
];

/// Signals by which users and service managers terminate a process.
const TERMINATING: [Signal; 4] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
];

/// All blocked signals.
pub struct Signals {
    source: SignalFd,
    terminating: SignalFd,
    observer: SignalObserver,
    inherited: InheritedSignals,
}

impl Signals {
    /// Blocks all signals except synchronous ones (SIGSEGV and the like).
    pub fn block() -> io::Result<Self> {
        let mut set = SigSet::all();
        SYNCHRONOUS
            .into_iter()
            .for_each(|signal| set.remove(signal));
        let terminating = TERMINATING
            .into_iter()
            .filter(|signal| !is_ignored(*signal));
        let terminating = SigSet::from_iter(terminating);
        let inherited = InheritedSignals::save(&set)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            source: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?,
            terminating: SignalFd::with_flags(&terminating, flags)?,
            observer: SignalObserver::start(&set)?,
            inherited,
        })
    }

    /// Returns the signal mask and dispositions for the command.
    pub fn inherited(&self) -> &InheritedSignals {
        &self.inherited
    }

    /// Returns the exit code if a terminating signal is pending.
    pub fn termination(&self) -> io::Result<Option<ExitCode>> {
        let info = self.terminating.read_signal()?;
        Ok(info.map(|info| exit_code_of(info.ssi_signo.cast_signed())))
    }

    /// Forwards signals to the command until it exits. Returns its exit code as shells do: 128 + n if
    /// signal n ended it.
    ///
    /// `wait` must return when a signal is readable.
    pub fn forward_to(
        &mut self,
        command: Pid,
        mut wait: impl FnMut(&SignalFd) -> nix::Result<()>,
    ) -> io::Result<ExitCode> {
        loop {
            wait(&self.source)?;
            let signal = match self.source.read_signal() {
                Ok(Some(info)) => info.ssi_signo,
                Ok(None) | Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if signal != Signal::SIGCHLD as u32 && !self.has_reached(command, signal) {
                // SAFETY: a system call without pointers; nix's `kill` lacks real-time signals.
                unsafe { libc::kill(command.as_raw(), signal.cast_signed()) };
            }
            // After each signal, because pending ones are read by number and could delay SIGCHLD.
            if let Some(code) = reap_children(command)? {
                return Ok(code);
            }
        }
    }

    fn has_reached(&mut self, command: Pid, signal: u32) -> bool {
        getpgid(Some(command)) == Ok(getpgrp()) && self.observer.has_observed(signal)
    }
}

// Children: the command, and orphans if pillion is the first process of a PID namespace.

/// Reaps all exited children; returns the command's exit code once it has exited.
fn reap_children(command: Pid) -> io::Result<Option<ExitCode>> {
    while let Some((child, status)) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED)? {
        if child.as_raw_pid() != command.as_raw() {
            continue;
        }
        if let Some(code) = status.exit_status() {
            return Ok(Some(ExitCode::from(code.to_le_bytes()[0])));
        }
        if let Some(signal) = status.terminating_signal() {
            return Ok(Some(exit_code_of(signal)));
        }
        if let Some(signal) = status.stopping_signal() {
            follow_stop(command, signal)?;
        }
    }
    Ok(None)
}

/// Returns the exit code of shells for a process that a signal ended.
fn exit_code_of(signal: i32) -> ExitCode {
    // At most 64.
    ExitCode::from(128 + signal.to_le_bytes()[0])
}

// Job control: a shell that waits for pillion regains the terminal when the command stops.

/// Stops this process as well if `signal` comes from the terminal. SIGSTOP does not: its sender
/// continues the command only. The exception is a shell that stops itself (`suspend`) and has the
/// terminal.
fn follow_stop(command: Pid, signal: i32) -> io::Result<()> {
    let Ok(terminal) = File::options().read(true).write(true).open("/dev/tty") else {
        return Ok(());
    };
    let (ours, theirs) = (getpgrp(), getpgid(Some(command))?);
    let has_terminal = theirs != ours && tcgetpgrp(&terminal) == Ok(theirs);
    match Signal::try_from(signal) {
        Ok(signal @ (Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU)) => stop(signal)?,
        Ok(Signal::SIGSTOP) if has_terminal => stop(Signal::SIGTSTP)?,
        _ => return Ok(()),
    }
    if has_terminal && tcgetpgrp(&terminal) == Ok(ours) {
        // In the foreground again; the terminal may be gone a moment later.
        let _ = tcsetpgrp(&terminal, theirs);
    }
    Ok(())
}

/// Stops this process until it is continued. In an orphaned process group the kernel drops these
/// signals, and it returns immediately.
fn stop(signal: Signal) -> nix::Result<()> {
    raise(signal)?;
    let signal = SigSet::from(signal);
    signal.thread_unblock()?;
    signal.thread_block()
}

// Inherited signal state, which pillion changes for itself and restores for the command.

/// The signal mask and ignored signals at the start of this process.
#[derive(Clone)]
pub struct InheritedSignals {
    mask: SigSet,
    ignored: Vec<Signal>,
    /// Signals with the default disposition that pillion or Rust's runtime has changed.
    default: Vec<Signal>,
}

impl InheritedSignals {
    /// Saves the state, blocks signals, and makes the kernel report exited children.
    fn save(blocked: &SigSet) -> nix::Result<Self> {
        // Rust's runtime has changed the first.
        let changed = [Signal::SIGPIPE, Signal::SIGCHLD, Signal::SIGXFSZ];
        let (ignored, default) = changed.into_iter().partition(|signal| is_ignored(*signal));
        ignore_file_limit_signal()?;
        // SAFETY: no handler is installed.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(blocked), Some(&mut mask))?;
        Ok(Self {
            mask,
            ignored,
            default,
        })
    }

    /// Restores the mask and dispositions, between fork and exec.
    pub fn restore(&self) -> nix::Result<()> {
        let ignored = self.ignored.iter().map(|it| (it, SigHandler::SigIgn));
        let default = self.default.iter().map(|it| (it, SigHandler::SigDfl));
        for (changed, handler) in ignored.chain(default) {
            // SAFETY: no handler is installed.
            unsafe { signal(*changed, handler) }?;
        }
        self.mask.thread_set_mask()
    }
}

// A signal to the whole process group or cgroup reaches the command directly, one to pillion only does
// not. The signal itself does not show the difference. A helper process in the same process group and
// cgroup observes which signals were sent to all.

/// Maximum delay of a signal to the other processes: service managers signal the processes of a cgroup
/// one by one, the main process first.
const MAX_DELAY: Duration = Duration::from_millis(50);

/// Time-out of the observer's answer, on a busy host or if it was stopped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Handle of the signal observer; dropping it stops the observer.
pub struct SignalObserver {
    socket: Option<UnixStream>,
    process: Pid,
    observed: SignalCounts,
}

impl SignalObserver {
    /// Starts an observer of these signals, which are blocked.
    pub fn start(signals: &SigSet) -> io::Result<Self> {
        let (socket, peer) = UnixStream::pair()?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        socket.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let process = helper_process::start(c"pillion-signals", peer, |socket| {
            let _ = answer_requests(&socket, signals);
        })?;
        Ok(Self {
            socket: Some(socket),
            process,
            observed: SignalCounts::default(),
        })
    }

    /// Returns true if the observer received the signal that this process has just read.
    pub fn has_observed(&mut self, signal: u32) -> bool {
        let started_at = Instant::now();
        loop {
            let is_last = started_at.elapsed() >= MAX_DELAY;
            self.request();
            if self.observed.take(signal) {
                return true;
            }
            if is_last {
                return false;
            }
            thread::sleep(MAX_DELAY / 10);
        }
    }

    /// Requests the observer's counts. Without an answer nothing counts as observed: the command had
    /// better get a signal twice than never.
    fn request(&mut self) {
        let mut answer = [0; SIGNALS];
        if let Some(socket) = &mut self.socket
            && socket.write_all(b"?").is_ok()
            && socket.read_exact(&mut answer).is_ok()
        {
            self.observed.add(&answer);
        }
    }
}

impl Drop for SignalObserver {
    fn drop(&mut self) {
        // SIGKILL, because it may have been stopped.
        let _ = kill(self.process, Signal::SIGKILL);
        let _ = retry(|| waitpid(self.process, None));
    }
}

/// Answers each request with the counts since the last one, until the socket closes.
fn answer_requests(mut socket: &UnixStream, signals: &SigSet) -> io::Result<()> {
    let source = SignalFd::with_flags(signals, SfdFlags::SFD_NONBLOCK)?;
    let mut request = [0];
    loop {
        socket.read_exact(&mut request)?;
        let mut counts = [0u8; SIGNALS];
        while let Some(info) = source.read_signal()? {
            let count = &mut counts[index(info.ssi_signo)];
            *count = count.saturating_add(1);
        }
        socket.write_all(&counts)?;
    }
}

/// Number of signals: 1 to 64.
const SIGNALS: usize = 64;

/// First real-time signal. Pending real-time signals queue; of the others only one each is pending.
const FIRST_REAL_TIME: usize = 32;

fn index(signal: u32) -> usize {
    signal as usize - 1
}

/// Observed signals that no request has taken yet.
struct SignalCounts(Box<[u8; SIGNALS]>);

impl Default for SignalCounts {
    fn default() -> Self {
        Self(Box::new([0; SIGNALS]))
    }
}

impl SignalCounts {
    fn add(&mut self, more: &[u8; SIGNALS]) {
        for (signal, (count, more)) in (1..).zip(self.0.iter_mut().zip(more)) {
            *count = match signal >= FIRST_REAL_TIME {
                true => count.saturating_add(*more),
                false => (*count).max(*more).min(1),
            };
        }
    }

    /// Takes one observation of this signal; returns false without one.
    fn take(&mut self, signal: u32) -> bool {
        let count = &mut self.0[index(signal)];
        let was_observed = *count > 0;
        *count = count.saturating_sub(1);
        was_observed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_signals_count_individually_others_once() {
        let mut counts = SignalCounts::default();
        let mut answer = [0; SIGNALS];
        (answer[index(10)], answer[index(40)]) = (2, 3);
        counts.add(&answer);
        assert!(counts.take(10) && !counts.take(10));
        assert!(counts.take(40) && counts.take(40) && counts.take(40) && !counts.take(40));
    }
}
