//! Which of an experiment's runs are made to reproduce what was published.

use super::{Selection, Selector};
use crate::{Part, RunKey};

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
