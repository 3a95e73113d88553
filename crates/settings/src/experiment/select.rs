//! Which of an experiment's runs are made to reproduce what was published.

use pillion_names::run;

use super::{Drawn, Published, PublishedTable, Reproduction, Selection, Selector};
use crate::document::Mistake;

/// The keys that a selection sets otherwise, as TOML.
pub(super) fn overlay(selection: &Selection) -> String {
    let duration = selection.duration.filter(|s| is_duration(*s));
    let duration = duration.map(|s| format!("duration = {s:?}\n"));
    let repetitions = selection
        .repetitions
        .map(|n| format!("repetitions = {n}\n"));
    duration.unwrap_or_default() + &repetitions.unwrap_or_default()
}

fn is_duration(s: f64) -> bool {
    s.is_finite() && s > 0.0
}

/// Whether a run of this name is among the selected ones: it has one of the values named of each
/// key that is named, and none that is for runs of today alone unless it is one; or it is one of
/// today's that are made as well.
pub(super) fn takes(selection: &Selection, today: &Selector, name: &str) -> bool {
    let is_allowed = |part: &str| {
        let of_key = selection.only.iter();
        let of_key = of_key.filter(|only| run::key(only) == run::key(part));
        let mut of_key = of_key.peekable();
        of_key.peek().is_none() || of_key.any(|only| only == part)
    };
    let is_only_today = |part: &str| selection.only_today.iter().any(|it| it == part);
    let is_today = today.takes(name);
    let is_one = || run::parts(name).all(is_allowed);
    let is_also = || selection.also.iter().any(|also| also.takes(name));
    is_one() && (is_today || !run::parts(name).any(is_only_today)) || is_today && is_also()
}

/// Tells of what stands for no run at all, and of numbers that stand for several at once.
pub(super) fn check(reproduction: &Reproduction, names: &[&str], mistakes: &mut Vec<Mistake>) {
    for duration in reproduction.selection.values().filter_map(|it| it.duration) {
        if !is_duration(duration) {
            let text = format!("a selection's duration is {duration}; give seconds above 0");
            mistakes.push(Mistake::new(0..1, text));
        }
    }
    for published in &reproduction.published {
        for runs in published.subjects() {
            if let Some((one, other)) = two_at_once(reproduction, runs, names) {
                let what = &published.what;
                let text = format!(
                    "published `{what}`: `{runs}` takes both `{one}` and `{other}`; name what \
                     tells them apart"
                );
                mistakes.push(Mistake::new(0..1, text));
            }
        }
    }
    let mut tell = |what: String| {
        let text = format!("{what} is no run of this experiment; `pillion lab plan` lists them");
        mistakes.push(Mistake::new(0..1, text));
    };
    let selections = reproduction.selection.values();
    let parts = selections.flat_map(|selection| selection.only.iter().chain(&selection.only_today));
    for part in parts {
        if !names.iter().any(|name| run::has_all(name, [part])) {
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
    let also = reproduction.selection.values().flat_map(|it| &it.also);
    let published = published.chain(also);
    for selector in published.chain(series).chain(causes).chain(cells) {
        if !names.iter().any(|name| selector.takes(name)) {
            tell(format!("`{selector}`"));
        }
    }
    let tables = reproduction.table.iter().flat_map(PublishedTable::mistakes);
    let figures = reproduction.figure.iter().flat_map(Drawn::mistakes);
    let numbers = reproduction.published.iter().flat_map(Published::mistakes);
    for text in tables.chain(figures).chain(numbers) {
        mistakes.push(Mistake::new(0..1, text));
    }
}

/// Two of a number's runs, as today or with one cause, that differ by more than the seed.
fn two_at_once<'a>(
    reproduction: &Reproduction,
    runs: &Selector,
    names: &[&'a str],
) -> Option<(&'a str, &'a str)> {
    let causes = reproduction.causes.iter().map(|cause| &cause.runs);
    let mut kernels = std::iter::once(&reproduction.today).chain(causes);
    kernels.find_map(|kernel| {
        let is_of = |name: &&&str| runs.takes(name) && kernel.takes(name);
        let mut taken = names.iter().filter(is_of);
        let one = taken.next()?;
        let is_alike =
            |other: &str| run::parts_without_seed(other).eq(run::parts_without_seed(one));
        let other = taken.find(|other| !is_alike(other))?;
        Some((*one, *other))
    })
}
