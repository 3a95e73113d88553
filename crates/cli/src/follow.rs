//! Devices and connections come and go while pillion waits.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use pillion_bundler::{Attachment, Change, Selection};

/// How often it is looked whether connections find no place, and something else is due.
const RECOUNT_MS: u16 = 1000;

/// What goes along with the following.
pub trait Watcher {
    /// Is told of each change.
    fn tell(&mut self, change: &Change);

    /// Is called about each second.
    fn keep_up(&mut self, attachment: &Attachment, selection: &Selection);
}

/// Waits until `signals` can be read, and follows devices and connections until then.
pub fn until_readable(
    signals: &impl AsFd,
    attachment: &mut Attachment,
    selection: &mut Selection,
    watcher: &mut impl Watcher,
) -> nix::Result<()> {
    loop {
        let mut fds = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(selection.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, RECOUNT_MS) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno),
        }
        let is_ready = |fd: &PollFd| fd.any().unwrap_or(false);
        let (signal, devices) = (is_ready(&fds[0]), is_ready(&fds[1]));
        if devices {
            let changes = attachment.follow(selection);
            changes.iter().for_each(|change| watcher.tell(change));
        }
        let changes = attachment.recount(selection);
        changes.iter().for_each(|change| watcher.tell(change));
        watcher.keep_up(attachment, selection);
        if signal {
            return Ok(());
        }
    }
}
