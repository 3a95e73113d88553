//! Devices come and go while pillion waits.

use std::io::Write;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pillion_bundler::{Attachment, Selection};

/// Waits until `signals` can be read, and follows the devices until then.
pub fn until_readable(
    signals: &impl AsFd,
    attachment: &mut Attachment,
    selection: &mut Selection,
    mut say: impl FnMut(&str),
) -> nix::Result<()> {
    loop {
        let mut fds = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(selection.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno),
        }
        let is_ready = |fd: &PollFd| fd.any().unwrap_or(false);
        let (signal, devices) = (is_ready(&fds[0]), is_ready(&fds[1]));
        if devices {
            match attachment.follow(selection) {
                Ok(changes) => changes.iter().for_each(|change| say(&change.to_string())),
                Err(error) => say(&error.to_string()),
            }
        }
        if signal {
            return Ok(());
        }
    }
}

/// A line on standard error, if that is still there: after SIGHUP the terminal may be gone.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
