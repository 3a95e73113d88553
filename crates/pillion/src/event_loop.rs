//! The event loop: follows devices, connections, and the cgroups and containers of the rules.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use pillion_bpf::host::interruption::poll;
use pillion_bpf::{AttachTargets, Attachment, Change};

use crate::process::CleanupHelper;

/// Interval of checks: connections without a slot, programs that others detached, and due work.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Why the event loop returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    Signal,
    Deadline,
    /// The cleanup helper was killed.
    HelperExited,
}

/// Callbacks of the event loop.
pub trait EventHandler {
    /// Reports a change.
    fn on_change(&mut self, change: &Change);

    /// Does periodic work, about once per second.
    fn on_tick(&mut self, _attachment: &mut Attachment, _targets: &AttachTargets) {}
}

/// Logs a change. Failures, which are retried, and the connection limit are warnings.
pub fn log_change(change: &Change) {
    match change {
        Change::Failed(_) | Change::LimitReached => log::warn!("{change}"),
        Change::Attached(_) | Change::Detached(_) | Change::Reattached | Change::BelowLimit => {
            log::info!("{change}");
        }
    }
}

/// Follows devices and connections until `signals` is readable, or the helper exits.
pub fn run_until_signal(
    signals: &impl AsFd,
    helper: &CleanupHelper,
    attachment: &mut Attachment,
    targets: &mut AttachTargets,
    handler: &mut impl EventHandler,
) -> nix::Result<Wake> {
    run_until_signal_or(signals, helper, attachment, targets, None, handler)
}

/// As [`run_until_signal`], but at most until `deadline`.
pub fn run_until_signal_or(
    signals: &impl AsFd,
    helper: &CleanupHelper,
    attachment: &mut Attachment,
    targets: &mut AttachTargets,
    deadline: Option<Instant>,
    handler: &mut impl EventHandler,
) -> nix::Result<Wake> {
    loop {
        let mut fds = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(helper.as_fd(), PollFlags::POLLIN),
            PollFd::new(targets.as_fd(), PollFlags::POLLIN),
        ];
        let left = deadline.map(|it| it.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(CHECK_INTERVAL, |left| left.min(CHECK_INTERVAL));
        poll(&mut fds, Some(timeout))?;
        let [signal, helper_exited, devices] = fds.map(|fd| fd.any().unwrap_or(false));
        if helper_exited && !signal {
            return Ok(Wake::HelperExited);
        }
        if devices {
            let changes = attachment.follow(targets);
            changes.iter().for_each(|change| handler.on_change(change));
        }
        for check in [Attachment::reattach, Attachment::recount] {
            let changes = check(attachment, targets);
            changes.iter().for_each(|change| handler.on_change(change));
        }
        handler.on_tick(attachment, targets);
        if signal {
            return Ok(Wake::Signal);
        }
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(Wake::Deadline);
        }
    }
}
