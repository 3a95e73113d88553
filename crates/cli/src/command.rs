//! A command that pillion runs, and that is to notice as little of it as can be. docs/process.md
//! has the manner.

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

use crate::beside;
use crate::disposition::{is_ignored, outlive_file_limit};
use crate::print::say_line;

/// Says why a command could not be started; the exit code that shells have for it.
pub fn cannot_run(program: &str, command: &OsStr, error: &io::Error) -> ExitCode {
    let name = command.to_string_lossy();
    if error.kind() == io::ErrorKind::NotFound {
        say_line!("{program}: {name}: command not found");
        return ExitCode::from(127);
    }
    say_line!("{program}: {name}: {error}");
    ExitCode::from(126)
}

// Signals to pillion are meant for the command; its end is pillion's end. docs/process.md has
// what becomes of each.

/// Signals that tell a process of what it has done itself.
const OWN: [Signal; 10] = [
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

/// Signals by which users and service managers end a process.
const ENDING: [Signal; 4] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
];

/// All signals but a process's own ones, held back from pillion.
pub struct Signals {
    source: SignalFd,
    ending: SignalFd,
    witness: Witness,
    inherited: Inherited,
}

impl Signals {
    /// Holds the signals back from now on.
    pub fn hold() -> io::Result<Self> {
        let mut set = SigSet::all();
        OWN.into_iter().for_each(|signal| set.remove(signal));
        let ending = ENDING.into_iter().filter(|signal| !is_ignored(*signal));
        let ending = SigSet::from_iter(ending);
        let inherited = Inherited::set_aside(&set)?;
        let at_once = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            source: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?,
            ending: SignalFd::with_flags(&ending, at_once)?,
            witness: Witness::call(&set)?,
            inherited,
        })
    }

    /// The signal mask and dispositions that the command is to have.
    pub fn inherited(&self) -> &Inherited {
        &self.inherited
    }

    /// The exit code if a signal has come that would have ended pillion.
    pub fn have_ended(&self) -> io::Result<Option<ExitCode>> {
        let info = self.ending.read_signal()?;
        Ok(info.map(|info| ended_by(info.ssi_signo.cast_signed())))
    }

    /// Waits for the command's end, passing signals on. Returns its exit code, as a
    /// shell would: 128 + n if signal n ended it.
    ///
    /// `wait` is called before each signal is read, until one can be.
    pub fn pass_to(
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
                // SAFETY: a plain system call; `kill` of nix knows no real-time signals.
                unsafe { libc::kill(command.as_raw(), signal.cast_signed()) };
            }
            // After each signal: pending ones are read by number, so lower ones could hide SIGCHLD.
            if let Some(code) = reap_children(command)? {
                return Ok(code);
            }
        }
    }

    fn has_reached(&mut self, command: Pid, signal: u32) -> bool {
        getpgid(Some(command)) == Ok(getpgrp()) && self.witness.heard(signal)
    }
}

// What becomes of the command, and of the other children that pillion may have: as the first
// process of a PID namespace, all that lose their parents.

/// Takes note of all that has become of the children; the command's exit code, once it has ended.
fn reap_children(command: Pid) -> io::Result<Option<ExitCode>> {
    while let Some((child, status)) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED)? {
        if child.as_raw_pid() != command.as_raw() {
            continue;
        }
        if let Some(code) = status.exit_status() {
            return Ok(Some(ExitCode::from(code.to_le_bytes()[0])));
        }
        if let Some(signal) = status.terminating_signal() {
            return Ok(Some(ended_by(signal)));
        }
        if let Some(signal) = status.stopping_signal() {
            follow_stop(command, signal)?;
        }
    }
    Ok(None)
}

/// The exit code by which a shell says that a signal has ended a process.
fn ended_by(signal: i32) -> ExitCode {
    // At most 64.
    ExitCode::from(128 + signal.to_le_bytes()[0])
}

// The terminal's job control: a shell that waits for pillion is to be back when the command stops.

/// Stops this process as well, if `signal` is the terminal's. SIGSTOP is not: whoever sends that
/// to the command alone continues it alone. But a shell stops itself so (`suspend`), which has the
/// terminal then.
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

/// Stops this process. Returns when it is continued, or at once where no shell is left that could
/// do so: there the kernel drops these signals.
fn stop(signal: Signal) -> nix::Result<()> {
    raise(signal)?;
    let signal = SigSet::from(signal);
    signal.thread_unblock()?;
    signal.thread_block()
}

// What the command is to inherit as if pillion were not there, though pillion itself needs
// something else.

/// The signal mask that this process was started with, and which signals it was to ignore.
#[derive(Clone)]
pub struct Inherited {
    mask: SigSet,
    ignored: Vec<Signal>,
    /// Signals that are not to be ignored, of those whose disposition pillion or its runtime has
    /// changed.
    heard: Vec<Signal>,
}

impl Inherited {
    /// Blocks signals from now on, and has the kernel tell of the end of children.
    fn set_aside(blocked: &SigSet) -> nix::Result<Self> {
        // Rust's runtime has changed what becomes of the first.
        let changed = [Signal::SIGPIPE, Signal::SIGCHLD, Signal::SIGXFSZ];
        let (ignored, heard) = changed.into_iter().partition(|signal| is_ignored(*signal));
        outlive_file_limit()?;
        // SAFETY: no handler is installed.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(blocked), Some(&mut mask))?;
        Ok(Self {
            mask,
            ignored,
            heard,
        })
    }

    /// Gives this process, between fork and exec, the mask and the dispositions that were set
    /// aside.
    pub fn restore(&self) -> nix::Result<()> {
        let ignored = self.ignored.iter().map(|it| (it, SigHandler::SigIgn));
        let heard = self.heard.iter().map(|it| (it, SigHandler::SigDfl));
        for (changed, handler) in ignored.chain(heard) {
            // SAFETY: no handler is installed.
            unsafe { signal(*changed, handler) }?;
        }
        self.mask.thread_set_mask()
    }
}

// Has a signal reached the command without pillion? One that was sent to the whole process group
// or cgroup has, one to pillion alone has not, and nothing in the signal tells which it was. So a
// second process is in the same group and cgroup, and hears what is sent to all.

/// How long after pillion other processes may hear of a signal: service managers signal the
/// processes of a cgroup one by one, the main one first.
const PATIENCE: Duration = Duration::from_millis(50);

/// How long the witness's answer may take on a busy host; one that was stopped never gives it.
const ANSWER: Duration = Duration::from_secs(1);

/// The witness, from this process's side; dropping it ends it.
pub struct Witness {
    line: Option<UnixStream>,
    process: Pid,
    heard: Heard,
}

impl Witness {
    /// Calls a witness for these signals, which are blocked.
    pub fn call(signals: &SigSet) -> io::Result<Self> {
        let (line, its_end) = UnixStream::pair()?;
        line.set_read_timeout(Some(ANSWER))?;
        line.set_write_timeout(Some(ANSWER))?;
        let process = beside::start(c"pillion-witness", its_end, |line| {
            let _ = testify(&line, signals);
        })?;
        Ok(Self {
            line: Some(line),
            process,
            heard: Heard::default(),
        })
    }

    /// True if the witness has heard the signal that this process has just read.
    pub fn heard(&mut self, signal: u32) -> bool {
        let begun = Instant::now();
        loop {
            let is_last = begun.elapsed() >= PATIENCE;
            self.ask();
            if self.heard.take(signal) {
                return true;
            }
            if is_last {
                return false;
            }
            thread::sleep(PATIENCE / 10);
        }
    }

    /// Asks the witness what it has heard. Without an answer it has heard nothing: the command
    /// rather gets a signal twice than never.
    fn ask(&mut self) {
        let mut answer = [0; SIGNALS];
        if let Some(line) = &mut self.line
            && line.write_all(b"?").is_ok()
            && line.read_exact(&mut answer).is_ok()
        {
            self.heard.add(&answer);
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // It may have been stopped, and has nothing to do any more.
        let _ = kill(self.process, Signal::SIGKILL);
        let _ = retry(|| waitpid(self.process, None));
    }
}

/// Answers each question with what has been heard since the last one, until nobody is left to
/// ask.
fn testify(mut line: &UnixStream, signals: &SigSet) -> io::Result<()> {
    let source = SignalFd::with_flags(signals, SfdFlags::SFD_NONBLOCK)?;
    let mut question = [0];
    loop {
        line.read_exact(&mut question)?;
        let mut heard = [0u8; SIGNALS];
        while let Some(info) = source.read_signal()? {
            let count = &mut heard[place(info.ssi_signo)];
            *count = count.saturating_add(1);
        }
        line.write_all(&heard)?;
    }
}

/// How many signals there are: their numbers are 1 to 64.
const SIGNALS: usize = 64;

/// Number of the first real-time signal: those wait one by one; of the others, one of each.
const FIRST_REAL_TIME: usize = 32;

fn place(signal: u32) -> usize {
    signal as usize - 1
}

/// How often each signal was heard and not asked after yet.
struct Heard(Box<[u8; SIGNALS]>);

impl Default for Heard {
    fn default() -> Self {
        Self(Box::new([0; SIGNALS]))
    }
}

impl Heard {
    fn add(&mut self, more: &[u8; SIGNALS]) {
        for (signal, (count, more)) in (1..).zip(self.0.iter_mut().zip(more)) {
            *count = match signal >= FIRST_REAL_TIME {
                true => count.saturating_add(*more),
                false => (*count).max(*more).min(1),
            };
        }
    }

    /// True if this signal was heard; it counts once less from then on.
    fn take(&mut self, signal: u32) -> bool {
        let count = &mut self.0[place(signal)];
        let was_heard = *count > 0;
        *count = count.saturating_sub(1);
        was_heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_signals_are_heard_one_by_one_and_others_once() {
        let mut heard = Heard::default();
        let mut answer = [0; SIGNALS];
        (answer[place(10)], answer[place(40)]) = (2, 3);
        heard.add(&answer);
        assert!(heard.take(10) && !heard.take(10));
        assert!(heard.take(40) && heard.take(40) && heard.take(40) && !heard.take(40));
    }
}
