//! What a file of rules says when it is read again.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use pillion_bpf::{Change, Hook, Namespaces, Selection};
use pillion_cli::exit::one_line;
use pillion_cli::settings::policy::File;
use pillion_cli::settings::{BadInput, Telling};
use pillion_stats::report::number::counted;

use super::Args;
use super::asked::name;
use super::at_work::AtWork;
use crate::rules::Rules;

/// Other rules that are in force.
pub(super) struct Reloaded {
    /// What is bundled by them.
    pub(super) bundling: String,
    pub(super) rules: Rules,
    /// What came and went with other network namespaces.
    pub(super) changes: Vec<Change>,
    pub(super) log: String,
}

impl AtWork<'_> {
    /// Reads the file again, puts its rules into force, and goes over to its network namespaces; says
    /// what came of it.
    pub(super) fn reload(&mut self, file: &Path) -> Result<Reloaded, String> {
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
