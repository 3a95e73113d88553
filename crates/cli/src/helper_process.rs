//! Helper processes.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::sched::{CloneFlags, clone};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, fork};

/// Starts a process that blocks all signals, has only `file` open, and exits when `work` returns.
pub fn start<F: AsRawFd>(name: &CStr, file: F, work: impl FnOnce(F)) -> io::Result<Pid> {
    // SAFETY: this process has a single thread.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            run_as(name, || {
                close_all_except(&file);
                work(file);
            });
            // SAFETY: exits without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Starts a process that blocks all signals, shares pillion's file descriptor table (files opened later
/// included), and exits when `work` returns.
pub fn spawn_sharing_files(name: &CStr, work: impl FnOnce()) -> io::Result<Pid> {
    const STACK_SIZE: usize = 1 << 20;
    let mut work = Some(work);
    let run = || {
        run_as(name, work.take().expect("clone calls it once"));
        0
    };
    let mut stack = vec![0; STACK_SIZE];
    // SAFETY: this process has a single thread, and the child's memory is a copy.
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
pub fn discard_standard_streams() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}

fn close_all_except(file: &impl AsRawFd) {
    discard_standard_streams();
    let fd = file.as_raw_fd().cast_unsigned();
    // SAFETY: this process does not use the other descriptors. musl has no function for the call.
    unsafe {
        if fd > 3 {
            libc::syscall(libc::SYS_close_range, 3, fd - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, fd + 1, u32::MAX, 0);
    }
}
