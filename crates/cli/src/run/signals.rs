//! Signals to pillion are meant for the command; its end is pillion's end.

use std::io;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, raise, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Signals that would end or stop pillion, held back from it.
pub struct Signals {
    source: SignalFd,
    inherited: SigSet,
}

const PASSED: [Signal; 10] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

impl Signals {
    pub fn block() -> nix::Result<Self> {
        let mut set = SigSet::from_iter(PASSED);
        set.add(Signal::SIGCHLD);
        let mut inherited = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), Some(&mut inherited))?;
        Ok(Self {
            source: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?,
            inherited,
        })
    }

    /// The mask that the command is to have.
    pub fn inherited(&self) -> SigSet {
        self.inherited
    }

    /// Waits for the command's end, passing signals on. Returns its exit code, as a
    /// shell would: 128 + n if signal n ended it.
    ///
    /// `wait` is called before each signal is read, until one can be.
    pub fn pass_to(
        &self,
        child: Pid,
        mut wait: impl FnMut(&SignalFd) -> nix::Result<()>,
    ) -> io::Result<ExitCode> {
        loop {
            wait(&self.source)?;
            let info = match self.source.read_signal() {
                Ok(Some(info)) => info,
                Ok(None) | Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let signal = Signal::try_from(info.ssi_signo.cast_signed())?;
            if signal == Signal::SIGCHLD {
                if let Some(code) = reap(child)? {
                    return Ok(code);
                }
            } else if info.ssi_code != libc::SI_KERNEL {
                // What the terminal sends, it sends to the command as well.
                let _ = kill(child, signal);
            }
        }
    }
}

fn reap(child: Pid) -> io::Result<Option<ExitCode>> {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
    match waitpid(child, Some(flags))? {
        WaitStatus::Exited(_, code) => Ok(Some(ExitCode::from(code.to_le_bytes()[0]))),
        WaitStatus::Signaled(_, signal, _) => Ok(Some(ExitCode::from(128 + signal as u8))),
        WaitStatus::Stopped(..) => {
            // The shell that started pillion waits for it to stop, too.
            raise(Signal::SIGSTOP)?;
            let _ = kill(child, Signal::SIGCONT);
            Ok(None)
        }
        _ => Ok(None),
    }
}
