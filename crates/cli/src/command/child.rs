//! What becomes of the command, and of the other children that pillion may have: as the first
//! process of a PID namespace, all that lose their parents.

use std::io;
use std::process::ExitCode;

use nix::unistd::Pid;
use rustix::process::{WaitOptions, wait};

use super::job;

/// Takes note of all that has become of the children; the command's exit code, once it has ended.
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
            job::follow(command, signal)?;
        }
    }
    Ok(None)
}

/// The exit code by which a shell says that a signal has ended a process.
pub fn ended_by(signal: i32) -> ExitCode {
    // At most 64.
    ExitCode::from(128 + signal.to_le_bytes()[0])
}
