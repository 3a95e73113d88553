//! What signals mean while pillion waits for where it is to bundle.

use std::path::Path;

use anyhow::{Result, anyhow};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use pillion_bpf::Selection;
use pillion_cli::print::{say, say_line};
use pillion_cli::settings::BadInput;
use pillion_stats::report::number::counted;

use super::asked::{Asked, name};
use super::follower::say_no_successor;
use super::place::Waited;
use super::reload::takes_a_new_start;
use super::{Args, is_terminals};
use crate::service::{Announced, manager};

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
