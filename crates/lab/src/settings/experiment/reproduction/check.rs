//! Checks `[reproduction]` against the runs.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use crate::measure_ref::nearest;
use crate::{Part, RunKey};

use super::{Claim, Reproduction, RunScale, Selector};
use crate::settings::experiment::PlannedRun;
use pillion_cli::settings::document::{Mistake, Value};

/// Reports selectors that match no run, claims and cells that match several runs (apart from the
/// seed), and invalid entries. `value` is the parsed table, for positions; `names` are the runs'.
pub(in crate::settings::experiment) fn check_selectors(
    reproduction: &Reproduction,
    value: &Value,
    names: &[&RunKey],
    mistakes: &mut Vec<Mistake>,
) {
    let mut report = |list: &str, index: usize, text: String| {
        mistakes.push(Mistake::new(span(value, list, index), text));
    };
    let unknown = |runs: &Selector| unknown_runs(runs, names);
    if reproduction.selection.contains_key(&RunScale::Full) {
        let text =
            "the full scale always has all runs; use `selection.quick` or `selection.default`";
        report("selection", 0, text.to_owned());
    }
    for selection in reproduction.selection.values() {
        for part in selection.only.iter().chain(&selection.baseline_only) {
            if let Some(text) = unknown_runs(&Selector::from_iter([part.clone()]), names) {
                report("selection", 0, text);
            }
        }
        for text in selection.extra_runs.iter().filter_map(unknown) {
            report("selection", 0, text);
        }
    }
    if let Some(text) = unknown(&reproduction.baseline) {
        report("baseline", 0, text);
    }
    for (index, cause) in reproduction.causes.iter().enumerate() {
        if let Some(text) = unknown(&cause.runs) {
            report("causes", index, text);
        }
    }
    for (index, claim) in reproduction.claims.iter().enumerate() {
        for runs in claim.subjects() {
            if let Some((one, other)) = ambiguous_runs(reproduction, runs, names) {
                let description = &claim.description;
                let text = format!(
                    "claim `{description}`: `{runs}` takes both `{one}` and `{other}`; add the part \
                     that distinguishes them"
                );
                report("claim", index, text);
            }
        }
        let unknown = claim.selectors().filter_map(unknown);
        let kind = claim.kind.unwrap_or(reproduction.kind);
        for text in unknown
            .chain(claim.mistakes())
            .chain(claim.kind_mistake(kind))
        {
            report("claim", index, text);
        }
    }
    for (index, table) in reproduction.table.iter().enumerate() {
        let mut cells = table.lines.iter().flat_map(|line| table.cells(line));
        let several = cells.find_map(|cell| {
            let (one, other) = ambiguous_runs(reproduction, &cell.runs, names)?;
            Some((cell.runs, one, other))
        });
        if let Some((runs, one, other)) = several {
            let title = &table.title;
            let text = format!(
                "table `{title}`: a cell's `{runs}` takes both `{one}` and `{other}`; add the part that \
                 distinguishes them"
            );
            report("table", index, text);
        }
        let unknown = table.selectors().filter_map(unknown);
        for text in unknown.chain(table.mistakes()) {
            report("table", index, text);
        }
    }
    for (index, figure) in reproduction.figure.iter().enumerate() {
        let unknown = figure.series.iter().filter_map(|it| unknown(&it.runs));
        for text in unknown.chain(figure.mistakes()) {
            report("figure", index, text);
        }
    }
}

/// Reports missing and unknown groups. A claim needs its group in every run. For a table's cell or
/// a curve it is enough that some run has the group; other cells stay empty.
pub(in crate::settings::experiment) fn check_groups(
    reproduction: &Reproduction,
    value: &Value,
    runs: &[PlannedRun],
    mistakes: &mut Vec<Mistake>,
) {
    let mut report =
        |list: &str, index: usize, description: String, missing: Option<MissingGroup>| {
            if let Some(MissingGroup { group, run, groups }) = missing {
                let text = match group {
                    "" => format!("{description}: missing `group`; {run} has: {groups}"),
                    group => format!("{description}: unknown group `{group}`; {run} has: {groups}"),
                };
                mistakes.push(Mistake::new(span(value, list, index), text));
            }
        };
    for (index, claim) in reproduction.claims.iter().enumerate() {
        let missing = claim
            .measured()
            .find_map(|(selector, group)| missing_group(runs, &selector, group));
        let other = claim.in_other_case();
        let other = other.iter().flat_map(Claim::measured);
        let mut other = other.map(|(selector, group)| missing_group(runs, &selector, group));
        let missing = missing.or_else(|| other.find_map(|it| it));
        report(
            "claim",
            index,
            format!("claim `{}`", claim.description),
            missing,
        );
    }
    let is_known = |group: &str| {
        let mut streams = runs.iter().flat_map(|run| &run.plan.streams);
        streams.any(|it| it.traffic.name == group)
    };
    let unless_known = |selector: &Selector, group| match is_known(group) {
        true => None,
        false => missing_group(runs, selector, group),
    };
    for (index, table) in reproduction.table.iter().enumerate() {
        for line in &table.lines {
            let mut cells = table.cells(line);
            let missing = cells.find_map(|cell| unless_known(&cell.runs, cell.group));
            let description = format!("table `{}`: line `{}`", table.title, line.label);
            report("table", index, description, missing);
        }
    }
    for (index, figure) in reproduction.figure.iter().enumerate() {
        for series in &figure.series {
            let description = format!("figure `{}`: series `{}`", figure.title, series.label);
            let missing = unless_known(&series.runs, &series.group);
            report("figure", index, description, missing);
        }
    }
}

/// Run without the requested group.
struct MissingGroup<'a> {
    group: &'a str,
    run: &'a RunKey,
    groups: String,
}

/// Returns the first selected run without this group, or with several groups if `group` is empty.
fn missing_group<'a>(
    runs: &'a [PlannedRun],
    selector: &Selector,
    group: &'a str,
) -> Option<MissingGroup<'a>> {
    let mut matching = runs.iter().filter(|run| selector.matches(&run.name));
    matching.find_map(|run| {
        let streams = run.plan.streams.iter();
        let groups: Vec<&str> = streams.map(|it| &*it.traffic.name).collect();
        let is_unambiguous = match group {
            "" => groups.len() == 1,
            group => groups.contains(&group),
        };
        (!is_unambiguous).then(|| MissingGroup {
            group,
            run: &run.name,
            groups: groups.join(", "),
        })
    })
}

/// Returns the error for a selector that matches no run, with the nearest part of existing names.
fn unknown_runs(runs: &Selector, names: &[&RunKey]) -> Option<String> {
    if names.iter().any(|name| runs.matches(name)) {
        return None;
    }
    let mut parts = runs.parts().iter();
    let unknown = parts.find(|part| !names.iter().any(|name| name.has(part)));
    Some(match unknown {
        Some(part) => {
            let known = names.iter().flat_map(|name| name.parts()).map(Part::as_str);
            let nearest = nearest(part.as_str(), known).unwrap_or_default();
            format!("no run matches `{runs}`: unknown part `{part}`; the nearest is `{nearest}`")
        }
        None => format!("no run matches `{runs}`: none has all of these parts"),
    })
}

/// Returns the span of a list's entry, otherwise of the list, otherwise of the whole value.
fn span(value: &Value, list: &str, index: usize) -> Range<usize> {
    let table = value.get_ref().as_table();
    let Some(list) = table.and_then(|table| table.get(list)) else {
        return value.span();
    };
    match list.get_ref() {
        DeValue::Array(all) => all.get(index).map_or(list.span(), Spanned::span),
        _ => list.span(),
    }
}

/// Returns two runs of a claim, on the baseline or with one cause, that differ in more than the
/// seed.
fn ambiguous_runs<'a>(
    reproduction: &Reproduction,
    runs: &Selector,
    names: &[&'a RunKey],
) -> Option<(&'a RunKey, &'a RunKey)> {
    let causes = reproduction.causes.iter().map(|cause| &cause.runs);
    let mut kernels = std::iter::once(&reproduction.baseline).chain(causes);
    kernels.find_map(|kernel| {
        let is_of = |name: &&&RunKey| runs.matches(name) && kernel.matches(name);
        let mut matching = names.iter().filter(is_of);
        let one = matching.next()?;
        let is_alike = |other: &RunKey| other.without_seed().eq(one.without_seed());
        let other = matching.find(|other| !is_alike(other))?;
        Some((*one, *other))
    })
}
