//! The start of `pillion attach`: waits for devices and namespaces, and attaches the programs.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use nix::sys::signalfd::{SignalFd, siginfo};
use pillion_bpf::host::interruption::poll;
use pillion_bpf::{Attachment, Error, Namespaces, Policy, Programs, Selection, cgroup2_mount};
use pillion_cli::exit::one_line;
use pillion_cli::print::{say, say_line};
use pillion_cli::settings::{BadInput, Endpoint, Telling};
use pillion_stats::report::number::counted;

use super::daemon::{Daemon, DeviceWatcher, say_no_successor, takes_a_new_start};
use super::{Args, Asked, is_terminals, name, names};
use crate::args::start_cleanup_helper;
use crate::follow::Watcher;
use crate::follow::{Rules, of_the_view};
use crate::handover::{inherited, is_still_to_succeed};
use crate::process::{keep_what_following_takes, read_signal};
use crate::service::{Announced, Service, manager};
use crate::stats::Stats;

/// After which it is at work on the devices that it has, and takes the others as it goes: a service
/// manager and a predecessor wait for a minute or so.
const PATIENCE: Duration = Duration::from_secs(20);

impl Args {
    /// Bundles what is asked for, where that is to be, and gives up what that takes no longer.
    pub(super) fn begin(
        &self,
        asked: Asked,
        mut selection: Selection,
        stats: Stats,
        announced: Announced,
    ) -> Result<Daemon<'_>> {
        let Asked {
            policy,
            namespaces,
            telling,
        } = asked;
        let chosen = self.connections(&policy);
        let policy = Policy {
            max_connections: self.bundling.max_connections,
            governing: true,
            ..policy
        }
        .at(&selection);
        // Before they go to the kernel: what comes and goes meanwhile is seen by the difference.
        let rules = Rules::of(policy.clone())?;
        let programs = self.load(&policy)?;
        let helper = start_cleanup_helper(&programs, &namespaces)?;
        let service = Service::begin(&telling, stats, announced)?;
        // It keeps its network namespaces from ending.
        drop(policy);
        let (attachment, changes) =
            Attachment::begin_everywhere(programs, &mut selection, Some(PATIENCE))?;
        let mut follower = DeviceWatcher::new(service, rules, of_the_view());
        let service = &mut follower.service;
        service.has_begun(chosen.clone(), &attachment, &selection)?;
        say_line!(
            "pillion: bundling {chosen} on {}; end with Ctrl-C",
            names(attachment.devices())
        );
        for change in changes {
            follower.tell(&change);
        }
        follower.tell_of_idle(&selection);
        let may_enter = !namespaces.is_own_alone();
        keep_what_following_takes(may_enter, self.has_files(&telling, &namespaces));
        Ok(Daemon {
            follower,
            attachment,
            _helper: helper,
            selection,
            namespaces,
            telling,
            may_enter,
            args: self,
        })
    }

    /// Loads the programs, to go on with what applications asked of a predecessor's.
    fn load(&self, policy: &Policy) -> Result<Programs> {
        let programs = Programs::load_after(policy, inherited())?;
        if inherited().is_some_and(|left| !programs.requests().are_as(left)) {
            say(
                "pillion: what applications have asked is forgotten: this version keeps it otherwise",
            );
        }
        Ok(programs.by(self.bundling.hook()))
    }

    /// True if files of others are read or written from now on.
    fn has_files(&self, telling: &Telling, namespaces: &Namespaces) -> bool {
        self.config.is_some()
            || telling.stats.is_some()
            || matches!(telling.metrics, Some(Endpoint::Unix(_)))
            || !namespaces.of_containers.is_empty()
    }
}

// Where to bundle, and waiting for it.

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
            if has_come && let Some(signal) = read_signal(signals)? {
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

// Signals while pillion waits for the devices.

impl Args {
    /// Where it is to bundle. With --wait, once that is there, by the file as it is by then; None if a
    /// signal ends that.
    pub(super) fn place(
        &self,
        asked: &mut Asked,
        announced: &Announced,
        signals: &SignalFd,
    ) -> Result<Option<Selection>> {
        if !self.wait {
            return self.find(&asked.namespaces).map(Some);
        }
        let mut said = String::new();
        loop {
            let signal = match self.wait(&asked.namespaces, announced, signals, &mut said)? {
                Waited::Come(selection) => return Ok(Some(selection)),
                Waited::Told(signal) => signal,
            };
            let number = Signal::try_from(signal.ssi_signo.cast_signed());
            match (number, &self.config) {
                (Ok(Signal::SIGHUP), Some(file)) => {
                    manager::reloads();
                    announced.reloaded(self.read_meanwhile(file, asked).is_ok());
                    // Who is told that it reloads is to be told what it waits for now.
                    said.clear();
                }
                (Ok(Signal::SIGHUP), None) if !is_terminals(&signal) => {
                    say("pillion: nothing to read again: no --config; SIGTERM ends it");
                }
                (Ok(Signal::SIGUSR2), _) => say_no_successor(&anyhow!(
                    "it waits, and there is nothing yet that one could take over; start it anew"
                )),
                (Ok(Signal::SIGUSR1) | Err(_), _) => {}
                (Ok(_), _) => {
                    manager::ends();
                    return Ok(None);
                }
            }
        }
    }

    /// Reads the file again; what is wrong with it is said, and what it said before holds.
    fn read_meanwhile(&self, file: &Path, asked: &mut Asked) -> Result<(), BadInput> {
        let name = name(file);
        match self.read_again(file) {
            Ok(read) => {
                asked.namespaces = self.namespaces(read.namespaces, &read.policy);
                asked.policy = read.policy;
                let rules = counted(asked.policy.rules.len() as u64, "rule");
                say_line!("pillion: reloaded {name}: {rules}");
                let telling = self.telling(read.telling);
                takes_a_new_start(&asked.telling, &telling)
                    .iter()
                    .for_each(|line| say(line));
                Ok(())
            }
            Err(why) => {
                say(&why.to_string());
                say_line!("pillion: {name} not reloaded: the old rules hold");
                Err(why)
            }
        }
    }
}
