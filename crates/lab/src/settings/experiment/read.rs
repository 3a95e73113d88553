//! Reads an experiment file: the selected runs, and `[reproduction]`.

use std::collections::BTreeSet;
use std::path::Path;

use pillion_cli::settings::document::known::keys;
use pillion_cli::settings::document::{self, Mistake, span_of};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::expression::{PARAMETERS, Parameters, replace};
use super::{
    Contradiction, Experiment, Group, Plan, PlannedRun, Reproduction, Run, RunScale, Selection,
    Selector, expand, reproduction,
};
use crate::settings::traffic;
use crate::{Part, RunKey};

/// Table of claims, tables and figures.
const REPRODUCTION: &str = "reproduction";

/// Keys of an experiment that are not keys of a run.
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
    scale: RunScale,
    mistakes: &mut Vec<Mistake>,
) -> Experiment {
    let mut known = keys::<Run>();
    known.extend(OWN_KEYS.map(str::to_owned));
    let mut document = document::known_part(document, &known, mistakes);
    let reproduction_value = document.remove(REPRODUCTION);
    let reproduction = reproduction_value
        .as_ref()
        .and_then(|value| document::read(value, mistakes));
    let selection = reproduction
        .as_ref()
        .and_then(|it: &Reproduction| it.selection.get(&scale));
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
    if let (Some(reproduction), Some(value)) = (&reproduction, &reproduction_value)
        && !expanded.is_empty()
    {
        let names: Vec<_> = expanded.iter().map(|it| &it.name).collect();
        reproduction::check::check_selectors(reproduction, value, &names, mistakes);
    }
    if let (Some(selection), Some(reproduction)) = (selection, &reproduction) {
        expanded.retain(|it| matches(selection, &reproduction.baseline, &it.name));
    }
    let mut unused = Unused::default();
    let runs = expanded.into_iter().filter_map(|expanded| {
        let (run, plan) = run(expanded.document, &mut unused, mistakes)?;
        let name = expanded.name;
        Some(PlannedRun { name, run, plan })
    });
    let runs: Vec<_> = runs.collect();
    let runs_are_valid = mistakes.is_empty();
    if let (Some(reproduction), Some(value)) = (&reproduction, &reproduction_value) {
        reproduction::check::check_groups(reproduction, value, &runs, mistakes);
    }
    for name in unused.parameters.unwrap_or_default() {
        let text = format!("no run uses `{name}`; use it, as in \"= {name}\", or remove it");
        let span = span_of(&document, &[PARAMETERS, &name]);
        mistakes.push(Mistake::new(span.unwrap_or(0..1), text));
    }
    // Only if all runs are valid: an invalid one may use the host.
    let hosts = unused.hosts.filter(|_| runs_are_valid);
    for name in hosts.unwrap_or_default() {
        let text = format!(
            "no group uses host `{name}`; set `host = \"{name}\"` in a group, or remove it"
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

/// Names that none of the runs so far uses; `None` before the first run.
#[derive(Default)]
struct Unused {
    parameters: Option<BTreeSet<String>>,
    hosts: Option<BTreeSet<String>>,
}

/// Keeps the names that this run does not use either.
fn retain(unused: &mut Option<BTreeSet<String>>, others: BTreeSet<String>) {
    *unused = Some(match unused.take() {
        Some(unused) => unused.intersection(&others).cloned().collect(),
        None => others,
    });
}

/// Reads one run from its own document; `None` if it is invalid.
fn run(
    mut merged: DeTable,
    unused: &mut Unused,
    mistakes: &mut Vec<Mistake>,
) -> Option<(Run, Plan)> {
    let known = mistakes.len();
    let mut parameters = Parameters::take(&mut merged, mistakes);
    let numbers = parameters.evaluate(&merged, mistakes);
    let mut document = merged;
    replace(&mut document, &mut numbers.iter().map(String::as_str));
    let others = parameters.unused().map(str::to_owned).collect();
    retain(&mut unused.parameters, others);
    let defaults = document.remove("defaults");
    let defaults = defaults.map(|value| {
        let (defaults, _) = document::defaults::<Group>(&value, &traffic::OWN_KEYS, mistakes);
        defaults
    });
    merge_defaults(&mut document, &defaults.unwrap_or_default(), mistakes);
    let value = Spanned::new(0..0, DeValue::Table(document));
    let mut run = document::read::<Run>(&value, mistakes)?;
    retain(&mut unused.hosts, run.remove_unused_hosts());
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

/// Merges the defaults into each group.
fn merge_defaults<'i>(
    document: &mut DeTable<'i>,
    defaults: &DeTable<'i>,
    mistakes: &mut Vec<Mistake>,
) {
    let Some(groups) = document.get_mut("group") else {
        return;
    };
    let span = groups.span();
    let DeValue::Table(groups) = Spanned::get_mut(groups) else {
        let text = "expected a table; start each group with [group.NAME]";
        mistakes.push(Mistake::new(span, text));
        return;
    };
    for (name, value) in groups.iter_mut() {
        let DeValue::Table(group) = Spanned::get_mut(value) else {
            continue;
        };
        if let Some((key, _)) = group.remove_entry("name") {
            let text = format!(
                "the group is named `{}` by its table; remove the key",
                name.get_ref()
            );
            mistakes.push(Mistake::new(key.span(), text));
        }
        *group = traffic::merged(group, defaults);
    }
}

// Runs that reproduce published results.

/// Returns the keys that a selection overrides, as TOML.
pub(super) fn overlay(selection: &Selection) -> String {
    let duration = selection.duration.map(|it| it.0.as_secs_f64());
    let duration = duration.map(|s| format!("duration = {s:?}\n"));
    let repetitions = selection
        .repetitions
        .map(|n| format!("repetitions = {n}\n"));
    duration.unwrap_or_default() + &repetitions.unwrap_or_default()
}

/// Returns whether a selection includes the run. `only` lists values per key; keys without an entry
/// allow all values. Values of `baseline-only` require a baseline run. Baseline runs of
/// `extra-runs` are always included.
pub(super) fn matches(selection: &Selection, baseline: &Selector, name: &RunKey) -> bool {
    let is_allowed = |part: &Part| {
        let of_key = selection.only.iter();
        let of_key = of_key.filter(|only| only.key() == part.key());
        let mut of_key = of_key.peekable();
        of_key.peek().is_none() || of_key.any(|only| only == part)
    };
    let is_baseline_only = |part: &Part| selection.baseline_only.contains(part);
    let is_baseline = baseline.matches(name);
    let is_selected = || name.parts().all(is_allowed);
    let is_extra = || {
        selection
            .extra_runs
            .iter()
            .any(|extra_runs| extra_runs.matches(name))
    };
    is_selected() && (is_baseline || !name.parts().any(is_baseline_only))
        || is_baseline && is_extra()
}
