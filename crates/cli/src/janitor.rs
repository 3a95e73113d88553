//! Cgroups and filters outlive their maker. So a second process waits for the end of this
//! one, `kill -9` included, and then removes them.

use std::io;
use std::os::fd::OwnedFd;

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, pipe2, read, setsid};
use pillion_host::interruption::retry;

use crate::beside;

/// The janitor, from this process's side; dropping it sends the janitor home.
pub struct Janitor {
    held: Option<OwnedFd>,
    process: Pid,
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.held.take());
        // Whoever stopped it did not continue it with this process.
        let _ = kill(self.process, Signal::SIGCONT);
        let _ = retry(|| waitpid(self.process, None));
    }
}

/// Starts the janitor; it acts when this process's end of a pipe is gone.
pub fn watch(clean_up: impl FnOnce()) -> io::Result<Janitor> {
    let (end, held) = pipe2(OFlag::O_CLOEXEC)?;
    let process = beside::start(c"pillion-janitor", end, |end| {
        // What kills the whole process group is not to kill it as well.
        let _ = setsid();
        let _ = retry(|| read(&end, &mut [0]));
        clean_up();
    })?;
    Ok(Janitor {
        held: Some(held),
        process,
    })
}
