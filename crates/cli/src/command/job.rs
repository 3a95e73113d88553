//! The terminal's job control: a shell that waits for pillion is to be back when the command stops.

use std::fs::File;
use std::io;

use nix::sys::signal::{SigSet, Signal, raise};
use nix::unistd::{Pid, getpgid, getpgrp, tcgetpgrp, tcsetpgrp};

/// Stops this process as well, if `signal` is the terminal's. SIGSTOP is not: whoever sends that
/// to the command alone continues it alone. But a shell stops itself so (`suspend`), which has the
/// terminal then.
pub fn follow(command: Pid, signal: i32) -> io::Result<()> {
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
