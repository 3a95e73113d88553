//! Devices and connections come and go while pillion waits.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use pillion_bpf::host::interruption::poll;
use pillion_bpf::{Attachment, Change, Selection};

/// How often it is looked whether connections find no place, or others have detached something, and
/// whether something else is due.
const RECOUNT: Duration = Duration::from_secs(1);

/// What goes along with the following.
pub trait Watcher {
    /// Is told of each change.
    fn tell(&mut self, change: &Change);

    /// Is called about each second.
    fn keep_up(&mut self, _attachment: &Attachment, _selection: &Selection) {}
}

/// Waits until `signals` can be read, and follows devices and connections until then.
pub fn until_readable(
    signals: &impl AsFd,
    attachment: &mut Attachment,
    selection: &mut Selection,
    watcher: &mut impl Watcher,
) -> nix::Result<()> {
    until_readable_or(signals, attachment, selection, None, watcher).map(drop)
}

/// Waits until `signals` can be read or the moment `end` comes, and follows devices and connections
/// until then; true if `signals` can be read.
pub fn until_readable_or(
    signals: &impl AsFd,
    attachment: &mut Attachment,
    selection: &mut Selection,
    end: Option<Instant>,
    watcher: &mut impl Watcher,
) -> nix::Result<bool> {
    loop {
        let mut fds = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(selection.as_fd(), PollFlags::POLLIN),
        ];
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let patience = left.map_or(RECOUNT, |left| left.min(RECOUNT));
        poll(&mut fds, Some(patience))?;
        let is_ready = |fd: &PollFd| fd.any().unwrap_or(false);
        let (signal, devices) = (is_ready(&fds[0]), is_ready(&fds[1]));
        if devices {
            let changes = attachment.follow(selection);
            changes.iter().for_each(|change| watcher.tell(change));
        }
        for look in [Attachment::stay, Attachment::recount] {
            let changes = look(attachment, selection);
            changes.iter().for_each(|change| watcher.tell(change));
        }
        watcher.keep_up(attachment, selection);
        if signal || left.is_some_and(|left| left.is_zero()) {
            return Ok(signal);
        }
    }
}
