//! Cgroups and filters outlive their maker. So a second process waits for the end of this
//! one, `kill -9` included, and then removes them.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::wait::waitpid;
use nix::unistd::{
    ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2, read, setsid,
};

/// The janitor, from this process's side; dropping it sends the janitor home.
pub struct Janitor {
    held: Option<OwnedFd>,
    process: Pid,
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.held.take());
        let _ = waitpid(self.process, None);
    }
}

/// Starts the janitor; it acts when this process's end of a pipe is gone.
pub fn watch(clean_up: impl FnOnce()) -> io::Result<Janitor> {
    let (end, held) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: this process has a single thread, so the child may do as it likes.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Janitor {
            held: Some(held),
            process: child,
        }),
        ForkResult::Child => {
            drop(held);
            wait(&end);
            clean_up();
            // SAFETY: leaves without running what the parent registered for its exit.
            unsafe { libc::_exit(0) }
        }
    }
}

fn wait(end: &OwnedFd) {
    let_go(end);
    let mut byte = [0];
    while read(end, &mut byte) == Err(nix::errno::Errno::EINTR) {}
}

/// Keeps nothing of the parent's but the pipe, and hears no signal meant for it.
fn let_go(end: &OwnedFd) {
    let _ = prctl::set_name(c"pillion-janitor");
    let _ = setsid();
    let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), None);
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
    let end = end.as_raw_fd().cast_unsigned();
    // SAFETY: nothing in this process uses the other descriptors again.
    unsafe {
        if end > 3 {
            libc::close_range(3, end - 1, 0);
        }
        libc::close_range(end + 1, u32::MAX, 0);
    }
}
