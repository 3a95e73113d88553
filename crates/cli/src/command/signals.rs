//! Signals to pillion are meant for the command; its end is pillion's end. docs/process.md has
//! what becomes of each.

use std::io;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpgid, getpgrp};

use super::child::{self, ended_by};
use super::inherited::Inherited;
use super::witness::Witness;
use crate::disposition::is_ignored;

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
            if let Some(code) = child::reap(command)? {
                return Ok(code);
            }
        }
    }

    fn has_reached(&mut self, command: Pid, signal: u32) -> bool {
        getpgid(Some(command)) == Ok(getpgrp()) && self.witness.heard(signal)
    }
}
