//! Devices and connections come and go while pillion waits.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use pillion_bundler::{Attachment, Change, Selection};

/// How often it is looked whether connections find no place, and something else is due.
const RECOUNT_MS: u16 = 1000;

/// Waits until `signals` can be read, and follows devices and connections until then; calls
/// `regularly` about each second.
pub fn until_readable(
    signals: &impl AsFd,
    attachment: &mut Attachment,
    selection: &mut Selection,
    mut tell: impl FnMut(&Change),
    mut regularly: impl FnMut(&Attachment),
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
            attachment.follow(selection).iter().for_each(&mut tell);
        }
        attachment.recount(selection).iter().for_each(&mut tell);
        regularly(attachment);
        if signal {
            return Ok(());
        }
    }
}
