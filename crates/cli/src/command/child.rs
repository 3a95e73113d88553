//! What becomes of the command, and of the other children that pillion may have: as the first
//! process of a PID namespace, all that lose their parents.

use std::fs::File;
use std::io;
use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal, raise};
use nix::unistd::Pid;
use rustix::process::{WaitOptions, wait};

/// Takes note of all that has become of them; the exit code, once the command has ended.
pub fn reap(command: Pid) -> io::Result<Option<ExitCode>> {
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
            follow(signal)?;
        }
    }
    Ok(None)
}

/// What a shell says of a process that a signal has ended.
pub fn ended_by(signal: i32) -> ExitCode {
    // At most 64.
    ExitCode::from(128 + signal.to_le_bytes()[0])
}

/// The shell that started pillion waits for it to stop, too, when the terminal stops the command.
/// SIGSTOP is no terminal's: whoever sends that to the command alone continues it alone.
fn follow(signal: i32) -> io::Result<()> {
    let signal = match Signal::try_from(signal) {
        Ok(signal @ (Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU)) => signal,
        _ => return Ok(()),
    };
    if File::open("/dev/tty").is_err() {
        return Ok(());
    }
    // The kernel drops the signal where no shell is left that could continue this process.
    raise(signal)?;
    let signal = SigSet::from(signal);
    signal.thread_unblock()?;
    signal.thread_block()?;
    Ok(())
}
