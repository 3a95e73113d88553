//! What a file of rules says when it is read again.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use pillion_bundler::{Attachment, Change, Namespaces, Policy, Selection};
use pillion_report::number::counted;
use pillion_settings::BadInput;
use pillion_settings::policy::File;

use super::{Args, STANDARD_INPUT, name};
use crate::exit::one_line;
use crate::rules::Rules;

/// What other rules are put into force on.
pub(super) struct AtWork<'a> {
    pub attachment: &'a mut Attachment,
    pub selection: &'a mut Selection,
    pub namespaces: &'a mut Namespaces,
    /// False where what it takes to enter other network namespaces was given up.
    pub may_enter: bool,
    /// False where something of pillion's would stay behind in other network namespaces.
    pub may_change: bool,
}

/// Other rules that are in force.
pub struct Reloaded {
    /// What is bundled by them.
    pub bundling: String,
    pub(super) rules: Rules,
    /// What came and went with other network namespaces.
    pub(super) changes: Vec<Change>,
    pub(super) log: String,
}

impl Args {
    /// Reads the file again, puts its rules into force, and goes over to its network namespaces; says
    /// what came of it.
    pub(super) fn reload(&self, file: &Path, at_work: AtWork) -> Result<Reloaded, String> {
        let name = name(file);
        let held = |why: String| format!("{why}\npillion: {name} not reloaded: the old rules hold");
        let refused = |error: anyhow::Error| {
            let error = one_line(&error);
            format!("pillion: {name} not reloaded: the old rules hold: {error}")
        };
        let read = self.read_again(file).map_err(|it| held(it.to_string()))?;
        let namespaces = self.namespaces(read.namespaces, &read.policy);
        let other = match namespaces == *at_work.namespaces {
            true => None,
            false => Some(self.select(&namespaces, &at_work).map_err(refused)?),
        };
        let seen = other.as_ref().unwrap_or(&*at_work.selection);
        let policy = Policy {
            running: seen.containers().to_vec(),
            ..read.policy
        };
        let attachment = at_work.attachment;
        let count = policy.rules.len();
        let rules = Rules::of(policy);
        let replaced = rules.put(attachment);
        replaced.map_err(|error| refused(error.into()))?;
        let has_others = other.is_some();
        let changed = match other {
            Some(other) => {
                *at_work.namespaces = namespaces;
                attachment.change(at_work.selection, other)
            }
            None => Ok(Vec::new()),
        };
        let reviewed = changed.and_then(|it| Ok((it, attachment.review()?)));
        let counted_rules = counted(count as u64, "rule");
        let mut log = match &reviewed {
            Ok((_, covered)) => format!(
                "pillion: reloaded {name}: {counted_rules}; {} covered",
                counted(*covered as u64, "connection"),
            ),
            Err(error) => format!(
                "pillion: reloaded {name}: {counted_rules} for new connections; of those that exist \
                 some are as they were, send SIGHUP again: {error}"
            ),
        };
        if has_others {
            let places = places(at_work.namespaces);
            log += &format!("\npillion: bundling in {places} now, and no longer elsewhere");
        }
        Ok(Reloaded {
            bundling: self.connections(count),
            rules,
            changes: reviewed.map_or_else(|_| Vec::new(), |(changes, _)| changes),
            log,
        })
    }

    /// What is to be bundled on in other network namespaces.
    fn select(&self, namespaces: &Namespaces, at_work: &AtWork) -> Result<Selection> {
        if !at_work.may_enter {
            bail!(
                "other network namespaces than its own take a new start: what it takes to enter \
                 them was given up"
            );
        }
        if !at_work.may_change {
            bail!("this kernel has no tcx, so that other network namespaces take a new start");
        }
        let hook = self.bundling.hook();
        let selection = Selection::new(&self.bundling.devices, namespaces, hook)?;
        selection.devices()?;
        Ok(selection)
    }

    /// Nothing is to hold pillion up while signals wait, as the other end of a pipe could.
    pub(super) fn read_again(&self, file: &Path) -> Result<File, BadInput> {
        let is_input = file == Path::new(STANDARD_INPUT);
        if is_input || fs::metadata(file).is_ok_and(|found| !found.is_file()) {
            let name = name(file);
            let why = format!("{name}: only a regular file can be read again; put one there");
            return Err(BadInput(why));
        }
        self.read(file)
    }
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
