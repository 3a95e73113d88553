//! Cgroups and filters outlive their maker, and reports of its bundles still arrive. So a second
//! process waits for the end of this one, `kill -9` included, and then clears them away.

use std::io;

use nix::poll::{PollFd, PollFlags};
use nix::unistd::setsid;
use pillion_host::interruption::{poll, retry};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};

use crate::{beside, privilege};

/// The janitor, from this process's side; dropping it ends the janitor.
pub struct Janitor {
    process: OwnedFd,
    /// Of this process; the janitor waits for it through the same descriptor.
    _this: OwnedFd,
}

impl Drop for Janitor {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        let its_end = || waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
        let _ = retry(its_end);
    }
}

/// Starts the janitor, which shares this process's descriptors: files and links stay open when this
/// process is killed, until `clean_up` closes them.
pub fn watch(clean_up: impl FnOnce()) -> io::Result<Janitor> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let janitor = beside::start_sharing(c"pillion-janitor", || {
        // What kills the whole process group is not to kill it as well.
        let _ = setsid();
        privilege::keep_what_following_takes(true, true);
        let mut this = [PollFd::new(this.as_fd(), PollFlags::POLLIN)];
        if poll(&mut this, None).is_ok() {
            beside::leave_standard_streams();
            clean_up();
        }
    })?;
    let janitor = rustix::process::Pid::from_raw(janitor.as_raw());
    let process = pidfd_open(janitor.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?;
    Ok(Janitor {
        process,
        _this: this,
    })
}
