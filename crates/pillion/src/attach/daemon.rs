//! The running `pillion attach`: follows devices, handles signals, reloads the rules, stops.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::process;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use nix::sys::signalfd::{SignalFd, siginfo};
use pillion_bpf::host::interruption::poll;
use pillion_bpf::{Attachment, Change, Hook, Namespaces, Selection};
use pillion_cli::exit::one_line;
use pillion_cli::print::{say, say_line};
use pillion_cli::settings::policy::File;
use pillion_cli::settings::{BadInput, Telling};
use pillion_stats::report::number::counted;

use super::{Args, is_terminals, name};
use crate::follow::Rules;
use crate::follow::{Watcher, until_readable};
use crate::handover::{Handover, is_successors};
use crate::process::{CleanupHelper, read_signal};
use crate::service::{Service, manager};
use crate::stats::{reasons, summary};

/// The bundler at work. What comes first ends first: the cleanup helper, once nothing stays behind.
pub(super) struct Daemon<'a> {
    pub follower: DeviceWatcher,
    pub attachment: Attachment,
    /// Removes filters in these network namespaces, and no others.
    pub _helper: CleanupHelper,
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

impl Daemon<'_> {
    /// Follows what comes and goes, and does what signals ask for, until one ends it.
    pub(super) fn run(&mut self, signals: &SignalFd) -> Result<End> {
        loop {
            let Self {
                attachment,
                selection,
                follower,
                ..
            } = self;
            until_readable(signals, attachment, selection, follower)
                .context("wait for a signal")?;
            if let Some(signal) = read_signal(signals)?
                && let Some(end) = self.handle_signal(&signal)
            {
                return Ok(end);
            }
        }
    }

    /// Does what a signal asks for; gives the end, if it is that.
    fn handle_signal(&mut self, signal: &siginfo) -> Option<End> {
        let number = Signal::try_from(signal.ssi_signo.cast_signed());
        match (number, &self.args.config) {
            (Ok(Signal::SIGHUP), Some(file)) => self.read_rules_again(file),
            (Ok(Signal::SIGHUP), None) if !is_terminals(signal) => {
                say("pillion: nothing to read again: no --config; SIGTERM ends it");
            }
            (Ok(Signal::SIGUSR1), _) => self.follower.service.write_stats(&self.attachment),
            (Ok(Signal::SIGUSR2), _) => self.begin_successor(),
            _ if is_successors(signal) && !self.follower.handover.has_sent(signal) => {}
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
                let begun = follower.handover.begin_again(may, requests);
                begun.unwrap_or_else(|error| say_no_successor(&error));
            }
        }
    }

    fn begin_successor(&mut self) {
        let may = self.may_be_succeeded();
        let handover = &mut self.follower.handover;
        let begun = may.and_then(|()| handover.begin(self.attachment.requests()));
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
        let handover = &mut self.follower.handover;
        if why == End::Told {
            handover.give_up();
            manager::ends();
        }
        self.attachment.finish();
        let late = late(signals)?;
        let is_succeeded = why == End::Succeeded && !late.end;
        if !is_succeeded {
            handover.give_up();
        } else if late.read_again && self.args.config.is_some() {
            handover.have_it_read_again();
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
        let Some(signal) = read_signal(signals)? else {
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

/// Tells of changes, and has the rules follow them.
pub struct DeviceWatcher {
    pub service: Service,
    pub handover: Handover,
    rules: Rules,
    /// What cannot be seen as long as pillion runs.
    view: Option<String>,
}

impl DeviceWatcher {
    pub fn new(service: Service, rules: Rules, view: Option<String>) -> Self {
        Self {
            service,
            handover: Handover::default(),
            rules,
            view: view.inspect(|view| say_line!("pillion: {view}")),
        }
    }

    /// Other rules are in force now.
    pub fn reloaded(&mut self, rules: Rules) {
        self.rules.replace(rules);
    }

    /// Says what covers nothing, each once until it covers something.
    pub fn tell_of_idle(&mut self, selection: &Selection) {
        let idle = self.rules.tell_of_idle(selection);
        let view = self.view.iter();
        self.service.notes(view.chain(idle).cloned().collect());
    }
}

/// Says why this one goes on.
pub fn say_no_successor(why: &anyhow::Error) {
    say_line!("pillion: no successor: {}", one_line(why));
}

impl Watcher for DeviceWatcher {
    fn tell(&mut self, change: &Change) {
        self.service.tell(change);
    }

    fn keep_up(&mut self, attachment: &Attachment, selection: &Selection) {
        let failing = self.rules.keep_up(attachment, selection);
        self.service.rules_fail(failing);
        self.tell_of_idle(selection);
        self.service.keep_up(attachment, selection);
        if let Err(error) = self.handover.look() {
            say_no_successor(&error);
            // It may have looked at all connections already, by rules of its own.
            if let Err(error) = attachment.look_again() {
                say_line!("pillion: {error}");
            }
        }
    }
}

// The reload of the file of rules.

/// Other rules that are in force.
struct Reloaded {
    /// What is bundled by them.
    bundling: String,
    rules: Rules,
    /// What came and went with other network namespaces.
    changes: Vec<Change>,
    log: String,
}

impl Daemon<'_> {
    /// Reads the file again, puts its rules into force, and goes over to its network namespaces; says
    /// what came of it.
    fn reload(&mut self, file: &Path) -> Result<Reloaded, String> {
        let name = name(file);
        let held = |why: String| format!("{why}\npillion: {name} not reloaded: the old rules hold");
        let refused = |error: anyhow::Error| {
            let error = one_line(&error);
            format!("pillion: {name} not reloaded: the old rules hold: {error}")
        };
        let read = self.args.read_again(file);
        let read = read.map_err(|it| held(it.to_string()))?;
        let namespaces = self.args.namespaces(read.namespaces, &read.policy);
        let other = match namespaces == self.namespaces {
            true => None,
            false => Some(self.select(&namespaces).map_err(refused)?),
        };
        let seen = other.as_ref().unwrap_or(&self.selection);
        let policy = read.policy.at(seen);
        let (count, chosen) = (policy.rules.len(), self.args.connections(&policy));
        let rules = Rules::of(policy).and_then(|rules| {
            rules.put(&self.attachment)?;
            Ok(rules)
        });
        let rules = rules.map_err(|error| refused(error.into()))?;
        let has_others = other.is_some();
        let changed = match other {
            Some(other) => {
                self.namespaces = namespaces;
                self.attachment.change(&mut self.selection, other)
            }
            None => Ok(Vec::new()),
        };
        let reviewed = changed.and_then(|it| Ok((it, self.attachment.review()?)));
        let counted_rules = counted(count as u64, "rule");
        let mut more = Vec::new();
        let mut log = match &reviewed {
            Ok((_, covered)) => format!(
                "pillion: reloaded {name}: {counted_rules}; {} covered",
                counted(*covered as u64, "connection"),
            ),
            Err(error) => {
                more = self.attachment.review_until_done(&mut self.selection);
                format!(
                    "pillion: reloaded {name}: {counted_rules} for new connections; of those that \
                     exist some are as they were, trying again: {error}"
                )
            }
        };
        if has_others {
            let places = places(&self.namespaces);
            log += &format!("\npillion: bundling in {places} now, and no longer elsewhere");
        }
        let telling = self.args.telling(read.telling);
        let told_of = takes_a_new_start(&self.telling, &telling);
        log.extend(told_of.map(|line| format!("\n{line}")));
        Ok(Reloaded {
            bundling: chosen,
            rules,
            changes: reviewed.map_or(more, |(changes, _)| changes),
            log,
        })
    }

    /// What is to be bundled on in other network namespaces.
    fn select(&self, namespaces: &Namespaces) -> Result<Selection> {
        if !self.may_enter {
            bail!(
                "other network namespaces than its own take a new start: what it takes to enter \
                 them was given up"
            );
        }
        if self.args.bundling.hook() == Hook::Clsact {
            bail!("this kernel has no tcx, so that other network namespaces take a new start");
        }
        Ok(self.args.bundling.selection(namespaces)?)
    }
}

impl Args {
    /// Nothing is to hold pillion up while signals wait, as the other end of a pipe could.
    pub(super) fn read_again(&self, file: &Path) -> Result<File, BadInput> {
        if self.reads_standard_input() || fs::metadata(file).is_ok_and(|found| !found.is_file()) {
            let name = name(file);
            let why = format!("{name}: only a regular file can be read again; put one there");
            return Err(BadInput(why));
        }
        self.read(file)
    }
}

/// A line about what is told beside the log, if a file has it otherwise now: that is read at the start
/// alone.
pub(super) fn takes_a_new_start(old: &Telling, new: &Telling) -> Option<String> {
    let keys: Vec<_> = old.differing(new).map(|key| format!("`{key}`")).collect();
    let line = format!(
        "pillion: changes of {} take a new start; until then all is told as before",
        keys.join(", ")
    );
    (!keys.is_empty()).then_some(line)
}

/// Network namespaces, in words.
fn places(namespaces: &Namespaces) -> String {
    let own = "its own network namespace".to_owned();
    let own = namespaces.named.is_empty().then_some(own);
    let named = namespaces.named.iter().map(ToString::to_string);
    let containers = namespaces.of_containers.iter();
    let containers = containers.map(|it| format!("containers {it}"));
    let places: Vec<_> = own.into_iter().chain(named).chain(containers).collect();
    places.join(", ")
}
