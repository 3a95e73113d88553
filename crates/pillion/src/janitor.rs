//! Cgroups and filters outlive their process, and reports of bundles in flight still arrive after its
//! end. So a second process waits for that end, also by `kill -9`, and cleans up.

use std::io;

use nix::poll::{PollFd, PollFlags};
use nix::unistd::setsid;
use pillion_bpf::host::interruption::{poll, retry};
use pillion_cli::beside;
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};

use crate::privilege;

/// Handle of the janitor; dropping it ends the janitor, without a cleanup.
pub struct Janitor {
    process: OwnedFd,
    /// Pidfd of this process. The janitor polls the same descriptor, so it must stay open.
    _this: OwnedFd,
}

impl Drop for Janitor {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        let its_end = || waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
        let _ = retry(its_end);
    }
}

/// Starts the janitor. It shares this process's descriptors: after a kill, files and links stay open
/// until `clean_up` closes them.
pub fn watch(clean_up: impl FnOnce()) -> io::Result<Janitor> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let janitor = beside::start_sharing(c"pillion-janitor", || {
        // A signal to pillion's process group must not kill the janitor.
        let _ = setsid();
        privilege::keep_what_following_takes(true, true);
        let mut this = [PollFd::new(this.as_fd(), PollFlags::POLLIN)];
        if poll(&mut this, None).is_ok() {
            beside::leave_standard_streams();
            clean_up();
        }
    })?;
    let janitor = Pid::from_raw(janitor.as_raw()).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(janitor, PidfdFlags::empty())?;
    Ok(Janitor {
        process,
        _this: this,
    })
}
