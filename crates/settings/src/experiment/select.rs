//! Which of an experiment's runs are made to reproduce what was published.

use super::{Drawn, PublishedTable, Reproduction, Selection, Selector};
use crate::document::Mistake;

/// The keys that a selection sets otherwise, as TOML.
pub(super) fn overlay(selection: &Selection) -> String {
    let duration = selection.duration.map(|s| format!("duration = {s:?}\n"));
    let repetitions = selection
        .repetitions
        .map(|n| format!("repetitions = {n}\n"));
    duration.unwrap_or_default() + &repetitions.unwrap_or_default()
}

/// Whether a run of this name is among the selected ones: it has one of the values named of each
/// key that is named, and none that is for runs of today alone unless it is one.
pub(super) fn takes(selection: &Selection, today: &Selector, run: &str) -> bool {
    let key = |part: &str| part.split_once('=').map(|(key, _)| key.to_owned());
    let is_allowed = |part: &str| {
        let of_key = selection.only.iter().filter(|only| key(only) == key(part));
        let mut of_key = of_key.peekable();
        of_key.peek().is_none() || of_key.any(|only| only == part)
    };
    let is_only_today = |part: &str| selection.only_today.iter().any(|it| it == part);
    run.split(',').all(is_allowed) && (today.takes(run) || !run.split(',').any(is_only_today))
}

/// Tells of what stands for no run at all.
pub(super) fn check(reproduction: &Reproduction, names: &[&str], mistakes: &mut Vec<Mistake>) {
    let mut tell = |what: String| {
        let text = format!("{what} is no run of this experiment; `pillion lab plan` lists them");
        mistakes.push(Mistake::new(0..1, text));
    };
    let selections = reproduction.selection.values();
    let parts = selections.flat_map(|selection| selection.only.iter().chain(&selection.only_today));
    for part in parts {
        if !names
            .iter()
            .any(|name| name.split(',').any(|it| it == part))
        {
            tell(format!("`{part}`, which a selection names,"));
        }
    }
    let published = reproduction.published.iter().flat_map(|it| {
        let more = it.over.iter().chain(&it.minus).chain(&it.ascending);
        [&it.runs].into_iter().chain(more)
    });
    let series = reproduction.figure.iter();
    let series = series.flat_map(|figure| figure.series.iter().map(|it| &it.runs));
    let causes = reproduction.causes.iter().map(|cause| &cause.runs);
    let cells = reproduction.table.iter().flat_map(|table| {
        let columns = table.columns.iter().map(|column| &column.runs);
        columns.chain(table.lines.iter().map(|line| &line.runs))
    });
    for selector in published.chain(series).chain(causes).chain(cells) {
        if !names.iter().any(|name| selector.takes(name)) {
            tell(format!("`{selector}`"));
        }
    }
    let tables = reproduction.table.iter().flat_map(PublishedTable::mistakes);
    let figures = reproduction.figure.iter().flat_map(Drawn::mistakes);
    for text in tables.chain(figures) {
        mistakes.push(Mistake::new(0..1, text));
    }
}
