//! The bundler at work, and what signals have it do until one ends it.

use std::os::fd::AsFd;
use std::path::Path;
use std::process;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use nix::sys::signalfd::{SignalFd, siginfo};
use pillion_bpf::host::interruption::poll;
use pillion_bpf::{Attachment, Namespaces, Selection};
use pillion_cli::print::{say, say_line};
use pillion_cli::settings::Telling;

use super::follower::{Follower, say_no_successor};
use super::reload::Reloaded;
use super::{Args, is_terminals};
use crate::account::{reasons, summary};
use crate::follow::{Watcher, until_readable};
use crate::janitor::Janitor;
use crate::service::manager;
use crate::signals::read;
use crate::succession::is_successors;

/// The bundler at work. What comes first ends first: the janitor, once nothing stays behind.
pub(super) struct AtWork<'a> {
    pub follower: Follower,
    pub attachment: Attachment,
    /// Removes filters in these network namespaces, and no others.
    pub _janitor: Janitor,
    pub selection: Selection,
    pub namespaces: Namespaces,
    /// As it was when this began.
    pub telling: Telling,
    /// False where what it takes to enter other network namespaces was given up.
    pub may_enter: bool,
    pub args: &'a Args,
}

/// What ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Its successor has taken over.
    Succeeded,
    Told,
}

impl AtWork<'_> {
    /// Follows what comes and goes, and does what signals ask for, until one ends it.
    pub(super) fn go_on(&mut self, signals: &SignalFd) -> Result<End> {
        loop {
            let Self {
                attachment,
                selection,
                follower,
                ..
            } = self;
            until_readable(signals, attachment, selection, follower)
                .context("wait for a signal")?;
            if let Some(signal) = read(signals)?
                && let Some(end) = self.heed(&signal)
            {
                return Ok(end);
            }
        }
    }

    /// Does what a signal asks for; gives the end, if it is that.
    fn heed(&mut self, signal: &siginfo) -> Option<End> {
        let number = Signal::try_from(signal.ssi_signo.cast_signed());
        match (number, &self.args.config) {
            (Ok(Signal::SIGHUP), Some(file)) => self.read_rules_again(file),
            (Ok(Signal::SIGHUP), None) if !is_terminals(signal) => {
                say("pillion: nothing to read again: no --config; SIGTERM ends it");
            }
            (Ok(Signal::SIGUSR1), _) => self.follower.service.write_stats(&self.attachment),
            (Ok(Signal::SIGUSR2), _) => self.begin_successor(),
            _ if is_successors(signal) && !self.follower.succession.has_sent(signal) => {}
            _ if is_successors(signal) => {
                manager::is_succeeded_by(signal.ssi_pid);
                return Some(End::Succeeded);
            }
            _ => return Some(End::Told),
        }
        None
    }

    fn read_rules_again(&mut self, file: &Path) {
        manager::reloads();
        let reloaded = self.reload(file);
        let may = self.may_be_succeeded();
        let follower = &mut self.follower;
        let bundling = reloaded.as_ref().map(|it| it.bundling.as_str());
        follower.service.reloaded(bundling.map_err(String::as_str));
        match reloaded {
            Err(why) => say(&why),
            Ok(Reloaded {
                rules,
                log,
                changes,
                ..
            }) => {
                say(&log);
                changes.iter().for_each(|change| follower.tell(change));
                follower.reloaded(rules);
                follower.tell_of_idle(&self.selection);
                let requests = self.attachment.requests();
                let begun = follower.succession.begin_again(may, requests);
                begun.unwrap_or_else(|error| say_no_successor(&error));
            }
        }
    }

    fn begin_successor(&mut self) {
        let may = self.may_be_succeeded();
        let succession = &mut self.follower.succession;
        let begun = may.and_then(|()| succession.begin(self.attachment.requests()));
        begun.unwrap_or_else(|error| say_no_successor(&error));
    }

    /// # Errors
    /// Why no other process could take over.
    fn may_be_succeeded(&self) -> Result<()> {
        self.args.may_be_succeeded()?;
        match self.namespaces.named.iter().find(|it| it.is_of_the_past()) {
            None => Ok(()),
            Some(name) => bail!(
                "the process of the {name} has ended, and no successor would find it; start pillion \
                 anew without it"
            ),
        }
    }

    /// Ends it, and says what was done.
    pub(super) fn end(mut self, why: End, signals: &SignalFd) -> Result<()> {
        let succession = &mut self.follower.succession;
        if why == End::Told {
            succession.give_up();
            manager::ends();
        }
        self.attachment.finish();
        let late = late(signals)?;
        let is_succeeded = why == End::Succeeded && !late.end;
        if !is_succeeded {
            succession.give_up();
        } else if late.read_again && self.args.config.is_some() {
            succession.have_it_read_again();
        }
        let totals = self.attachment.totals()?;
        say_line!("pillion: {}", summary(&totals));
        let reasons = reasons(&totals);
        if !reasons.is_empty() {
            say_line!("pillion: not bundled: {reasons}");
        }
        match is_succeeded {
            true => say("pillion: its successor is at work"),
            // What the file of --stats has is the successor's by now.
            false => self.follower.service.end(&self.attachment)?,
        }
        Ok(())
    }
}

impl Args {
    /// A successor reads all that this process has read.
    fn may_be_succeeded(&self) -> Result<()> {
        if process::id() == 1 {
            bail!("it is the first process of a container, which ends with it; begin another one");
        }
        if self.reads_standard_input() {
            bail!("the rules of standard input cannot be read again");
        }
        Ok(())
    }
}

/// What has been asked of pillion while it ended for its successor.
#[derive(Debug, Default)]
struct Late {
    /// To end, whatever its successor does.
    end: bool,
    /// To read its rules again.
    read_again: bool,
}

/// What the signals ask for that have come.
fn late(signals: &SignalFd) -> Result<Late> {
    let mut late = Late::default();
    let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    while let Ok(1..) = poll(&mut fds, Some(Duration::ZERO)) {
        let Some(signal) = read(signals)? else {
            continue;
        };
        match signal.ssi_signo.cast_signed() {
            libc::SIGINT | libc::SIGTERM => late.end |= !is_successors(&signal),
            libc::SIGHUP => late.read_again = true,
            _ => {}
        }
    }
    Ok(late)
}
