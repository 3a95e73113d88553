//! Reads an experiment's file: its runs as far as they are selected, and what it reproduces.

use std::collections::BTreeSet;
use std::path::Path;

use pillion_cli::settings::BadInput;
use pillion_cli::settings::document::known::keys;
use pillion_cli::settings::document::{self, Mistake, span_of};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::expression::{PARAMETERS, Parameters, replace};
use super::{
    Contradiction, Experiment, Extent, Group, Plan, Planned, Reproduction, Run, Selection,
    Selector, expand, reproduction,
};
use crate::settings::traffic;
use crate::settings::traffic::Writes;
use crate::traffic::Table;
use crate::{Part, RunKey};

/// The table of what is reproduced.
const REPRODUCTION: &str = "reproduction";

/// The keys of an experiment that none of its runs has.
const OWN_KEYS: [&str; 7] = [
    REPRODUCTION,
    "repetitions",
    "defaults",
    "variant",
    "axis",
    PARAMETERS,
    "grid",
];

pub(super) fn experiment(
    document: &DeTable,
    folder: &Path,
    extent: Extent,
    mistakes: &mut Vec<Mistake>,
) -> Experiment {
    let mut known = keys::<Run>();
    known.extend(OWN_KEYS.map(str::to_owned));
    let mut document = document::known_part(document, &known, mistakes);
    let reproduced = document.remove(REPRODUCTION);
    let reproduction = reproduced
        .as_ref()
        .and_then(|value| document::read(value, mistakes));
    let selection = reproduction
        .as_ref()
        .and_then(|it: &Reproduction| it.selection.get(&extent));
    let overlay = selection.map(overlay).unwrap_or_default();
    let Ok(overlay) = DeTable::parse(&overlay) else {
        unreachable!("keys with numbers are TOML");
    };
    document::merge(&mut document, overlay.get_ref());
    let document = document;
    let seeds = expand::seeds(&document, mistakes);
    let Ok(seeds) = DeTable::parse(&seeds) else {
        unreachable!("a list of numbers is TOML");
    };
    let mut expanded = expand::expand(&document, seeds.get_ref(), folder, mistakes);
    if let (Some(reproduction), Some(value)) = (&reproduction, &reproduced)
        && !expanded.is_empty()
    {
        let names: Vec<_> = expanded.iter().map(|it| &it.name).collect();
        reproduction::check::check_selectors(reproduction, value, &names, mistakes);
    }
    if let (Some(selection), Some(reproduction)) = (selection, &reproduction) {
        expanded.retain(|it| takes(selection, &reproduction.today, &it.name));
    }
    let mut unused = Unused::default();
    let runs = expanded.into_iter().filter_map(|expanded| {
        let (run, plan) = run(expanded.document, &mut unused, mistakes)?;
        let name = expanded.name;
        Some(Planned { name, run, plan })
    });
    let runs: Vec<_> = runs.collect();
    let runs_are_right = mistakes.is_empty();
    if let (Some(reproduction), Some(value)) = (&reproduction, &reproduced) {
        reproduction::check::check_groups(reproduction, value, &runs, mistakes);
    }
    for name in unused.parameters.unwrap_or_default() {
        let text = format!("no run uses `{name}`; use it, as in \"= {name}\", or leave it out");
        let span = span_of(&document, &[PARAMETERS, &name]);
        mistakes.push(Mistake::new(span.unwrap_or(0..1), text));
    }
    // A run with a mistake may be the one that uses it.
    let hosts = unused.hosts.filter(|_| runs_are_right);
    for name in hosts.unwrap_or_default() {
        let text = format!(
            "no streams come from `{name}`; give a group `host = \"{name}\"`, or leave it out"
        );
        let span = span_of(&document, &["host", &name]);
        mistakes.push(Mistake::new(span.unwrap_or(0..1), text));
    }
    let title = runs.last().and_then(|planned| planned.run.title.clone());
    Experiment {
        title,
        runs,
        reproduction,
    }
}

/// What no run so far has used, by name; `None` before the first run.
#[derive(Default)]
struct Unused {
    parameters: Option<BTreeSet<String>>,
    hosts: Option<BTreeSet<String>>,
}

/// Keeps of the names that no run so far has used those that this one does not use either.
fn keep(unused: &mut Option<BTreeSet<String>>, others: BTreeSet<String>) {
    *unused = Some(match unused.take() {
        Some(unused) => unused.intersection(&others).cloned().collect(),
        None => others,
    });
}

/// One run, from the document that is its own; none if it cannot be.
fn run(
    mut whole: DeTable,
    unused: &mut Unused,
    mistakes: &mut Vec<Mistake>,
) -> Option<(Run, Plan)> {
    let known = mistakes.len();
    let mut parameters = Parameters::take(&mut whole, mistakes);
    let numbers = parameters.evaluate(&whole, mistakes);
    let mut document = whole;
    replace(&mut document, &mut numbers.iter().map(String::as_str));
    let others = parameters.unused().map(str::to_owned).collect();
    keep(&mut unused.parameters, others);
    let defaults = document.remove("defaults");
    let defaults = defaults.map(|value| {
        let (defaults, _) = document::defaults::<Group>(&value, &traffic::OWN_KEYS, mistakes);
        defaults
    });
    inherit(&mut document, &defaults.unwrap_or_default(), mistakes);
    let value = Spanned::new(0..0, DeValue::Table(document));
    let mut run = document::read::<Run>(&value, mistakes)?;
    keep(&mut unused.hosts, run.take_idle_hosts());
    match run.plan() {
        Ok(plan) if mistakes.len() == known => Some((run, plan)),
        Ok(_) => None,
        Err(Contradiction { path, text }) => {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let document = value.get_ref().as_table();
            let span = document.and_then(|document| span_of(document, &path));
            mistakes.push(Mistake::new(span.unwrap_or(0..1), text));
            None
        }
    }
}

/// Gives each group what it takes from the defaults.
fn inherit<'i>(document: &mut DeTable<'i>, defaults: &DeTable<'i>, mistakes: &mut Vec<Mistake>) {
    let Some(groups) = document.get_mut("group") else {
        return;
    };
    let span = groups.span();
    let DeValue::Table(groups) = Spanned::get_mut(groups) else {
        let text = "no table; begin each group with [group.NAME]";
        mistakes.push(Mistake::new(span, text));
        return;
    };
    for (name, value) in groups.iter_mut() {
        let DeValue::Table(group) = Spanned::get_mut(value) else {
            continue;
        };
        if let Some((key, _)) = group.remove_entry("name") {
            let text = format!(
                "a group's name is that of its table, here `{}`; remove the key",
                name.get_ref()
            );
            mistakes.push(Mistake::new(key.span(), text));
        }
        *group = traffic::whole(group, defaults);
    }
}

/// Replaces every `table:FILE` and `file:FILE` by what the file says; files are sought from the experiment's
/// folder.
pub(super) fn embed_tables(document: &mut DeTable, folder: &Path, mistakes: &mut Vec<Mistake>) {
    for (_, value) in document.iter_mut() {
        let span = value.span();
        match Spanned::get_mut(value) {
            DeValue::Table(table) => embed_tables(table, folder, mistakes),
            DeValue::String(text) => {
                let table = |file| Table::read_csv(&folder.join(file));
                let table = |file| table(file).map_err(|error| BadInput(error.to_string()));
                let embedded = if let Some(file) = text.strip_prefix("table:") {
                    table(file).map(|table| table.to_text())
                } else if let Some(file) = text.strip_prefix("file:") {
                    Writes::read(&folder.join(file)).map(|writes| writes.to_string())
                } else {
                    continue;
                };
                match embedded {
                    Ok(embedded) => *text = embedded.into(),
                    Err(BadInput(why)) => mistakes.push(Mistake::new(span, why)),
                }
            }
            _ => {}
        }
    }
}

// Which of an experiment's runs are made to reproduce what was published.

/// The keys that a selection sets otherwise, as TOML.
pub(super) fn overlay(selection: &Selection) -> String {
    let duration = selection.duration.map(|it| it.0.as_secs_f64());
    let duration = duration.map(|s| format!("duration = {s:?}\n"));
    let repetitions = selection
        .repetitions
        .map(|n| format!("repetitions = {n}\n"));
    duration.unwrap_or_default() + &repetitions.unwrap_or_default()
}

/// Whether a run of this name is among the selected ones: it has one of the values named of each
/// key that is named, and none that is for runs of today alone unless it is one; or it is one of
/// today's that are made as well.
pub(super) fn takes(selection: &Selection, today: &Selector, name: &RunKey) -> bool {
    let is_allowed = |part: &Part| {
        let of_key = selection.only.iter();
        let of_key = of_key.filter(|only| only.key() == part.key());
        let mut of_key = of_key.peekable();
        of_key.peek().is_none() || of_key.any(|only| only == part)
    };
    let is_only_today = |part: &Part| selection.only_today.contains(part);
    let is_today = today.takes(name);
    let is_one = || name.parts().all(is_allowed);
    let is_also = || selection.also.iter().any(|also| also.takes(name));
    is_one() && (is_today || !name.parts().any(is_only_today)) || is_today && is_also()
}
