//! Small processes beside pillion that hold nothing of its own but one file.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, fork};

/// Starts one with all signals blocked; it ends when `work` returns. `kept` is its own from
/// then on.
pub fn start<F: AsRawFd>(name: &CStr, kept: F, work: impl FnOnce(F)) -> io::Result<Pid> {
    // SAFETY: this process has a single thread, so the child may do as it likes.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let _ = prctl::set_name(name);
            let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), None);
            keep_only(&kept);
            work(kept);
            // SAFETY: leaves without running what the parent registered for its exit.
            unsafe { libc::_exit(0) }
        }
    }
}

fn keep_only(kept: &impl AsRawFd) {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
    let kept = kept.as_raw_fd().cast_unsigned();
    // SAFETY: nothing in this process uses the other descriptors again.
    unsafe {
        if kept > 3 {
            libc::close_range(3, kept - 1, 0);
        }
        libc::close_range(kept + 1, u32::MAX, 0);
    }
}
