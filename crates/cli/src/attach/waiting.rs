//! What signals mean while pillion waits for where it is to bundle.

use anyhow::{Result, anyhow};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use pillion_bundler::{Hook, Namespaces, Policy};
use pillion_report::number::counted;

use super::follower::say_no_successor;
use super::place::{Place, Waited};
use super::{Args, STANDARD_INPUT, is_terminals, name};
use crate::print::say;
use crate::service::{Announced, manager};

impl Args {
    /// Waits for what is not there yet, by the file as it is by then; None if a signal ends that.
    pub(super) fn wait(
        &self,
        hook: Hook,
        announced: &Announced,
        signals: &SignalFd,
        policy: &mut Policy,
        namespaces: &mut Namespaces,
    ) -> Result<Option<Place>> {
        let mut said = String::new();
        loop {
            let names = self.names(hook, namespaces);
            let signal = match names.wait(announced, signals, &mut said)? {
                Waited::Come(place) => return Ok(Some(place)),
                Waited::Told(signal) => signal,
            };
            match Signal::try_from(signal.ssi_signo.cast_signed()) {
                Ok(Signal::SIGHUP) if self.config.is_some() => {
                    manager::reloads();
                    self.read_meanwhile(policy, namespaces);
                    // Who is told that it reloads is to be told what it waits for now.
                    said.clear();
                }
                Ok(Signal::SIGHUP) if !is_terminals(&signal) => {
                    say("pillion: nothing to read again: no --config; SIGTERM ends it");
                }
                Ok(Signal::SIGUSR2) => say_no_successor(&anyhow!(
                    "it waits, and there is nothing yet that one could take over; start it anew"
                )),
                Ok(Signal::SIGUSR1) | Err(_) => {}
                Ok(_) => {
                    manager::ends();
                    return Ok(None);
                }
            }
        }
    }

    /// Reads the file again; what is wrong with it is said, and what it said before holds.
    fn read_meanwhile(&self, policy: &mut Policy, namespaces: &mut Namespaces) {
        let file = self.config.as_deref().unwrap_or(STANDARD_INPUT.as_ref());
        let name = name(file);
        match self.read_again(file) {
            Ok(read) => {
                *namespaces = self.namespaces(read.namespaces, &read.policy);
                *policy = read.policy;
                let rules = counted(policy.rules.len() as u64, "rule");
                say(&format!("pillion: reloaded {name}: {rules}"));
            }
            Err(why) => {
                say(&why.to_string());
                say(&format!("pillion: {name} not reloaded: the old rules hold"));
            }
        }
    }
}
