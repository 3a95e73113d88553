use std::{iter, slice};

use serde::Deserialize;

use super::{Selector, Tolerance};
use crate::MeasureRef;
use crate::settings::experiment::Name;
use pillion_cli::settings::text;

/// A published number, or an order of numbers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    /// What it is, in a few words.
    pub what: String,
    /// Where it stands, if not where the whole experiment does.
    #[serde(default)]
    pub source: Option<String>,
    /// The measure, as in `ack_latency_ms p97`.
    pub measure: MeasureRef,
    /// The group of streams.
    #[serde(default)]
    pub group: Option<Name>,
    /// The runs that the measure is taken of.
    #[serde(default)]
    pub runs: Selector,
    /// The published value, in the measure's unit.
    #[serde(default)]
    pub value: Option<f64>,
    /// How far off a reproduction may be.
    #[serde(default, deserialize_with = "text::option::deserialize")]
    pub within: Option<Tolerance>,
    /// The most that the measure may be.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// The least that the measure may be.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// The measure is taken in proportion to that of these runs; of the same ones if only a group
    /// is named.
    #[serde(default)]
    pub over: Option<Selector>,
    /// The group that the measure is taken in proportion to.
    #[serde(default)]
    pub over_group: Option<Name>,
    /// The measure is taken in proportion to this one; of the same runs and group if none are named.
    #[serde(default)]
    pub over_measure: Option<MeasureRef>,
    /// The measure is taken less that of these runs.
    #[serde(default)]
    pub minus: Option<Selector>,
    /// The measure grows in this order of runs.
    #[serde(default)]
    pub ascending: Vec<Selector>,
    /// Why that tolerance, or how the number was found.
    #[serde(default)]
    pub why: Option<String>,
}

impl Published {
    /// The runs of which the measure is taken, one selector for each value.
    pub(in crate::settings::experiment) fn subjects(&self) -> &[Selector] {
        match self.ascending.as_slice() {
            [] => slice::from_ref(&self.runs),
            order => order,
        }
    }

    /// What the measure is taken in proportion to, if to anything: of which runs, and of which group if
    /// not its own.
    #[must_use]
    pub fn base(&self) -> Option<(Selector, Option<&Name>)> {
        let is_relative =
            self.over.is_some() || self.over_group.is_some() || self.over_measure.is_some();
        let runs = self.over.clone().unwrap_or_default();
        is_relative.then_some((runs, self.over_group.as_ref()))
    }

    /// The runs that it is judged by, and of which group of theirs.
    pub(super) fn measured(&self) -> impl Iterator<Item = (Selector, Option<&Name>)> {
        let own = self.group.as_ref();
        let all = self.subjects().iter().chain(&self.minus).cloned();
        let all = all.map(move |runs| (runs, own));
        all.chain(self.base().map(|(runs, base)| (runs, base.or(own))))
    }

    /// All the runs that it names.
    pub(super) fn selectors(&self) -> impl Iterator<Item = &Selector> {
        let more = self.over.iter().chain(&self.minus).chain(&self.ascending);
        iter::once(&self.runs).chain(more)
    }

    /// What is wrong with it, beside its selectors.
    pub(super) fn mistakes(&self) -> Vec<String> {
        let numbers = [self.value, self.at_most, self.at_least];
        let order = &self.ascending;
        let statements = numbers.iter().flatten().count() + usize::from(!order.is_empty());
        let is_twice = |it: &Selector| order.iter().filter(|other| *other == it).count() > 1;
        let mut measures = [Some(&self.measure), self.over_measure.as_ref()].into_iter();
        let wrong = [
            (
                measures.any(|it| it.is_some_and(|it| !it.is_value())),
                "the measure has more than one value; ask for a statistic, as in \"ack_latency_ms p97\"",
            ),
            (
                statements != 1,
                "give one of `value`, `at-most`, `at-least` and `ascending`",
            ),
            (
                self.value.is_some() && self.within.is_none(),
                "`value` wants `within`, how far off it may be, as in \"15 %\" or 20",
            ),
            (
                self.value == Some(0.0) && matches!(self.within, Some(Tolerance::Share(_))),
                "a share of 0 is nothing; give `within` as a number in the measure's unit",
            ),
            (
                order.len() == 1 || order.iter().any(is_twice),
                "`ascending` is an order of two or more, each once",
            ),
            (
                self.base().is_some() && self.minus.is_some(),
                "it has both `over` and `minus`; leave one out",
            ),
            (
                !self.ascending.is_empty() && !self.runs.parts().is_empty(),
                "`ascending` names its runs itself; leave out `runs`",
            ),
            (
                self.within.is_some() && self.value.is_none(),
                "`within` belongs to `value`",
            ),
            (
                numbers.into_iter().flatten().any(|it| !it.is_finite()),
                "give numbers that are finite",
            ),
        ];
        let wrong = wrong.into_iter().filter(|(is_wrong, _)| *is_wrong);
        wrong
            .map(|(_, text)| format!("published `{}`: {text}", self.what))
            .collect()
    }
}
