//! Checks `[reproduction]` against the runs.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use crate::measure_ref::nearest;
use crate::{Part, RunKey};

use super::{Extent, Reproduction, Selector};
use crate::settings::experiment::Planned;
use pillion_cli::settings::document::{Mistake, Value};

/// Reports selectors that match no run, numbers and cells that match several (apart from the seed), and
/// entries that cannot be judged or drawn. `value` is the parsed table, for positions; `names` are the
/// runs'.
pub(in crate::settings::experiment) fn check_selectors(
    reproduction: &Reproduction,
    value: &Value,
    names: &[&RunKey],
    mistakes: &mut Vec<Mistake>,
) {
    let mut tell = |list: &str, place: usize, text: String| {
        mistakes.push(Mistake::new(span(value, list, place), text));
    };
    let unknown = |runs: &Selector| unknown_runs(runs, names);
    if reproduction.selection.contains_key(&Extent::Full) {
        let text =
            "the full extent always has all runs; use `selection.quick` or `selection.default`";
        tell("selection", 0, text.to_owned());
    }
    for selection in reproduction.selection.values() {
        for part in selection.only.iter().chain(&selection.only_today) {
            if let Some(text) = unknown_runs(&Selector::from_iter([part.clone()]), names) {
                tell("selection", 0, text);
            }
        }
        for text in selection.also.iter().filter_map(unknown) {
            tell("selection", 0, text);
        }
    }
    if let Some(text) = unknown(&reproduction.today) {
        tell("today", 0, text);
    }
    for (place, cause) in reproduction.causes.iter().enumerate() {
        if let Some(text) = unknown(&cause.runs) {
            tell("causes", place, text);
        }
    }
    for (place, published) in reproduction.published.iter().enumerate() {
        for runs in published.subjects() {
            if let Some((one, other)) = ambiguous_runs(reproduction, runs, names) {
                let what = &published.what;
                let text = format!(
                    "published `{what}`: `{runs}` takes both `{one}` and `{other}`; name what \
                     tells them apart"
                );
                tell("published", place, text);
            }
        }
        let unknown = published.selectors().filter_map(unknown);
        for text in unknown.chain(published.mistakes()) {
            tell("published", place, text);
        }
    }
    for (place, table) in reproduction.table.iter().enumerate() {
        let mut cells = table.lines.iter().flat_map(|line| table.cells(line));
        let several = cells.find_map(|cell| {
            let (one, other) = ambiguous_runs(reproduction, &cell.runs, names)?;
            Some((cell.runs, one, other))
        });
        if let Some((runs, one, other)) = several {
            let title = &table.title;
            let text = format!(
                "table `{title}`: a cell's `{runs}` takes both `{one}` and `{other}`; name what tells \
                 them apart"
            );
            tell("table", place, text);
        }
        let unknown = table.selectors().filter_map(unknown);
        for text in unknown.chain(table.mistakes()) {
            tell("table", place, text);
        }
    }
    for (place, figure) in reproduction.figure.iter().enumerate() {
        let unknown = figure.series.iter().filter_map(|it| unknown(&it.runs));
        for text in unknown.chain(figure.mistakes()) {
            tell("figure", place, text);
        }
    }
}

/// Reports missing and unknown groups. A published number needs its group in every run; of a table's cell
/// or a curve it is enough that some run has the group: elsewhere the cell stays empty.
pub(in crate::settings::experiment) fn check_groups(
    reproduction: &Reproduction,
    value: &Value,
    runs: &[Planned],
    mistakes: &mut Vec<Mistake>,
) {
    let mut tell = |list: &str, place: usize, what: String, lacking: Option<Lacking>| {
        if let Some(Lacking { group, run, groups }) = lacking {
            let text = match group {
                "" => format!("{what}: missing `group`; {run} has: {groups}"),
                group => format!("{what}: unknown group `{group}`; {run} has: {groups}"),
            };
            mistakes.push(Mistake::new(span(value, list, place), text));
        }
    };
    for (place, published) in reproduction.published.iter().enumerate() {
        let mut measured = published.measured();
        let lacking = measured.find_map(|(selector, group)| lacks_group(runs, &selector, group));
        tell(
            "published",
            place,
            format!("published `{}`", published.what),
            lacking,
        );
    }
    let is_known = |group: &str| {
        let mut streams = runs.iter().flat_map(|run| &run.plan.streams);
        streams.any(|it| it.traffic.name == group)
    };
    let unless_known = |selector: &Selector, group| match is_known(group) {
        true => None,
        false => lacks_group(runs, selector, group),
    };
    for (place, table) in reproduction.table.iter().enumerate() {
        for line in &table.lines {
            let mut cells = table.cells(line);
            let lacking = cells.find_map(|cell| unless_known(&cell.runs, cell.group));
            let what = format!("table `{}`: line `{}`", table.title, line.label);
            tell("table", place, what, lacking);
        }
    }
    for (place, figure) in reproduction.figure.iter().enumerate() {
        for series in &figure.series {
            let what = format!("figure `{}`: series `{}`", figure.title, series.label);
            let lacking = unless_known(&series.runs, &series.group);
            tell("figure", place, what, lacking);
        }
    }
}

/// A run without the group that is asked of it.
struct Lacking<'a> {
    group: &'a str,
    run: &'a RunKey,
    groups: String,
}

/// The first of these runs that has not this group, or has several and none is named.
fn lacks_group<'a>(
    runs: &'a [Planned],
    selector: &Selector,
    group: &'a str,
) -> Option<Lacking<'a>> {
    let mut taken = runs.iter().filter(|run| selector.takes(&run.name));
    taken.find_map(|run| {
        let streams = run.plan.streams.iter();
        let groups: Vec<&str> = streams.map(|it| &*it.traffic.name).collect();
        let is_unambiguous = match group {
            "" => groups.len() == 1,
            group => groups.contains(&group),
        };
        (!is_unambiguous).then(|| Lacking {
            group,
            run: &run.name,
            groups: groups.join(", "),
        })
    })
}

/// What is wrong if no run has all these parts in its name, with the nearest part that runs have.
fn unknown_runs(runs: &Selector, names: &[&RunKey]) -> Option<String> {
    if names.iter().any(|name| runs.takes(name)) {
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

/// The span of a list's entry; else of the list, else of the whole value.
fn span(value: &Value, list: &str, place: usize) -> Range<usize> {
    let table = value.get_ref().as_table();
    let Some(list) = table.and_then(|table| table.get(list)) else {
        return value.span();
    };
    match list.get_ref() {
        DeValue::Array(all) => all.get(place).map_or(list.span(), Spanned::span),
        _ => list.span(),
    }
}

/// Two of a number's runs, as today or with one cause, that differ by more than the seed.
fn ambiguous_runs<'a>(
    reproduction: &Reproduction,
    runs: &Selector,
    names: &[&'a RunKey],
) -> Option<(&'a RunKey, &'a RunKey)> {
    let causes = reproduction.causes.iter().map(|cause| &cause.runs);
    let mut kernels = std::iter::once(&reproduction.today).chain(causes);
    kernels.find_map(|kernel| {
        let is_of = |name: &&&RunKey| runs.takes(name) && kernel.takes(name);
        let mut taken = names.iter().filter(is_of);
        let one = taken.next()?;
        let is_alike = |other: &RunKey| other.without_seed().eq(one.without_seed());
        let other = taken.find(|other| !is_alike(other))?;
        Some((*one, *other))
    })
}
