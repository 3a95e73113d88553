//! Small processes beside pillion.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::sched::{CloneFlags, clone};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, fork};

/// Starts a process that blocks all signals, has no file of pillion's except `kept`, and ends when
/// `work` returns.
pub fn start<F: AsRawFd>(name: &CStr, kept: F, work: impl FnOnce(F)) -> io::Result<Pid> {
    // SAFETY: this process has a single thread, so the child may do as it likes.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            run_as(name, || {
                keep_only(&kept);
                work(kept);
            });
            // SAFETY: leaves without running what the parent registered for its exit.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Starts a process that blocks all signals, shares pillion's table of file descriptors (also files
/// that are opened later), and ends when `work` returns.
pub fn start_sharing(name: &CStr, work: impl FnOnce()) -> io::Result<Pid> {
    const STACK: usize = 1 << 20;
    let mut work = Some(work);
    let run = || {
        run_as(name, work.take().expect("clone calls it once"));
        0
    };
    let mut stack = vec![0; STACK];
    // SAFETY: this process has a single thread, so the child may do as it likes; its memory is a copy.
    let child = unsafe {
        clone(
            Box::new(run),
            &mut stack,
            CloneFlags::CLONE_FILES,
            Some(libc::SIGCHLD),
        )
    };
    Ok(child?)
}

fn run_as(name: &CStr, work: impl FnOnce()) {
    let _ = prctl::set_name(name);
    let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), None);
    work();
}

/// Replaces the standard streams by `/dev/null`.
pub fn leave_standard_streams() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}

fn keep_only(kept: &impl AsRawFd) {
    leave_standard_streams();
    let kept = kept.as_raw_fd().cast_unsigned();
    // SAFETY: nothing in this process uses the other descriptors again.
    unsafe {
        if kept > 3 {
            libc::close_range(3, kept - 1, 0);
        }
        libc::close_range(kept + 1, u32::MAX, 0);
    }
}
