//! Where to bundle, and waiting for it.

use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signalfd::{SignalFd, siginfo};
use pillion_bpf::host::interruption::poll;
use pillion_bpf::{Error, Namespaces, Selection, cgroup2_mount};
use pillion_cli::exit::one_line;
use pillion_cli::print::say_line;

use super::Args;
use crate::service::{Announced, manager};
use crate::signals::read;
use crate::succession::is_still_to_succeed;

/// How often it is looked whether what is waited for has come.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What waiting has come to.
pub enum Waited {
    Come(Selection),
    Told(siginfo),
}

impl Args {
    /// The devices, with all else that it takes.
    pub(super) fn find(&self, namespaces: &Namespaces) -> Result<Selection> {
        let selection = self.bundling.selection(namespaces)?;
        cgroup2_mount()?;
        Ok(selection)
    }

    /// Waits for what is not there yet, or for a signal. `said` is why it waits, as said before.
    pub(super) fn wait(
        &self,
        namespaces: &Namespaces,
        announced: &Announced,
        signals: &SignalFd,
        said: &mut String,
    ) -> Result<Waited> {
        loop {
            let why = match self.find(namespaces) {
                Err(error) if is_still_to_come(&error) => one_line(&error),
                found => return found.map(Waited::Come),
            };
            if why != *said {
                announced.waits(&why);
                say_line!("pillion: waits: {why}");
                *said = why;
            }
            let asked = announced.asked().unwrap_or(signals.as_fd());
            let mut fds = [signals.as_fd(), asked].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            poll(&mut fds, Some(LOOK_EVERY)).context("wait for a signal")?;
            let [has_come, is_asked] = fds.map(|fd| fd.any().unwrap_or(false));
            if is_asked && announced.asked().is_some() {
                announced.answer();
            }
            manager::is_alive();
            is_still_to_succeed()?;
            if has_come && let Some(signal) = read(signals)? {
                return Ok(Waited::Told(signal));
            }
        }
    }
}

/// At boot a device may not be up yet, and a network namespace not made.
fn is_still_to_come(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(
            Error::UnknownDevice { .. }
                | Error::NoDevice
                | Error::UnknownNamespace { .. }
                // `ip netns` makes a file first, and puts the namespace there then.
                | Error::NotANamespace { .. }
                | Error::NoCgroup2
        )
    )
}
