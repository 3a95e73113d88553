//! What a published experiment's file says beside the runs: the published numbers and figures, and
//! which runs are made for them.

pub(super) mod check;
mod figure;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::{fmt, iter, slice};

use clap::ValueEnum;
use pillion_cli::settings::times::Length;
use pillion_cli::settings::{BadInput, text};
use serde::{Deserialize, Deserializer};

use crate::settings::numbers;
use crate::{MeasureRef, Part};

pub use crate::Selector;
pub use figure::{
    Cell, Curve, Expected, FigureKind, Heading, Line, PublishedCell, PublishedTable, Sketch,
};

/// How much of an experiment is run to reproduce it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// A first look, within minutes.
    Quick,
    /// What each published figure takes, with intervals over seeds.
    #[default]
    Default,
    /// All that the papers varied.
    Full,
}

/// What is reproduced.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Reproduction {
    /// Where it was published, as in `LCN 2015, figure 4`.
    pub source: String,
    /// What was found then, in a sentence.
    pub finding: String,
    /// No paper has it: what is judged are expectations of its own, and counted apart.
    pub beyond: bool,
    /// What runs on the kernel as it is have in their names, as in `kernel=today`.
    pub today: Selector,
    /// What else may have been otherwise then: of each cause, what its runs have in their names
    /// in the place of what those of today have, and what it is.
    pub causes: Vec<Cause>,
    /// Of extents but the full one, which runs are made.
    pub selection: BTreeMap<Extent, Selection>,
    /// Numbers to be met.
    pub published: Vec<Claim>,
    /// Tables to be filled.
    pub table: Vec<PublishedTable>,
    /// Figures to be drawn.
    pub figure: Vec<Sketch>,
}

/// A reason for which today's result may differ from the published one; runs show whether it is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cause {
    /// The runs in which the reason is taken away.
    pub runs: Selector,
    /// What was otherwise, as in `losses are recovered from as in Linux 3.16`.
    pub is: String,
}

/// A part of an experiment's runs.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Selection {
    /// How long runs last, in place of the experiment's.
    pub duration: Option<Length>,
    /// Seeds, in place of the experiment's.
    #[serde(deserialize_with = "numbers::some_repetitions")]
    pub repetitions: Option<u32>,
    /// Of what is varied, the values to be run, as in `loss=10`; of a key of which none is named,
    /// all are.
    #[serde(deserialize_with = "parts")]
    pub only: Vec<Part>,
    /// Of these, the values that are run as today alone, and of no cause: no number is published
    /// of them.
    #[serde(deserialize_with = "parts")]
    pub only_today: Vec<Part>,
    /// Runs as today that are made as well, whatever `only` says.
    pub also: Vec<Selector>,
}

fn parts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Part>, D::Error> {
    let parts = Vec::<String>::deserialize(from)?;
    Ok(parts.iter().map(|part| part.as_str().into()).collect())
}

/// A published number, or an order of numbers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    /// What it is, in a few words.
    pub what: String,
    /// Where it stands; empty: where the whole experiment does.
    #[serde(default)]
    pub source: String,
    /// The measure, as in `ack_latency_ms p97`.
    pub measure: MeasureRef,
    /// The group of streams; empty where a run has but one.
    #[serde(default)]
    pub group: String,
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
    /// or a measure is named: of the same run where that is one of them, and else of the run that
    /// differs from it in nothing but what is asked of both.
    #[serde(default)]
    pub over: Option<Selector>,
    /// The group that the measure is taken in proportion to; empty: its own.
    #[serde(default)]
    pub over_group: String,
    /// The measure is taken in proportion to this one; of the same runs and group if none are named.
    #[serde(default)]
    pub over_measure: Option<MeasureRef>,
    /// The measure is taken less that of these runs: of a run as with `over`.
    #[serde(default)]
    pub minus: Option<Selector>,
    /// The measure grows in this order of runs.
    #[serde(default)]
    pub ascending: Vec<Selector>,
    /// Why that tolerance, or how the number was found.
    #[serde(default)]
    pub why: Option<String>,
}

impl Claim {
    /// What is said of the measure.
    #[must_use]
    pub fn statement(&self) -> Statement {
        match (self.value, self.at_most, self.at_least) {
            (Some(value), ..) => {
                let within = self.within.map_or(0.0, |within| within.of(value));
                Statement::Value(value, within)
            }
            (_, Some(most), _) => Statement::AtMost(most),
            (.., Some(least)) => Statement::AtLeast(least),
            (None, None, None) => Statement::Ascending,
        }
    }

    /// The runs of which the measure is taken, one selector for each value.
    #[must_use]
    pub fn subjects(&self) -> &[Selector] {
        match self.ascending.as_slice() {
            [] => slice::from_ref(&self.runs),
            order => order,
        }
    }

    /// What the measure is taken in proportion to, if to anything: of which runs, and of which group.
    #[must_use]
    pub fn base(&self) -> Option<(Selector, &str)> {
        let is_relative =
            self.over.is_some() || !self.over_group.is_empty() || self.over_measure.is_some();
        let group = match self.over_group.as_str() {
            "" => &self.group,
            other => other,
        };
        is_relative.then(|| (self.over.clone().unwrap_or_default(), group))
    }

    /// The runs that it is judged by, and of which group of theirs.
    pub(crate) fn measured(&self) -> impl Iterator<Item = (Selector, &str)> {
        let all = self.subjects().iter().chain(&self.minus).cloned();
        let all = all.map(|runs| (runs, self.group.as_str()));
        all.chain(self.base())
    }

    /// All the runs that it names.
    pub(in crate::settings::experiment) fn selectors(&self) -> impl Iterator<Item = &Selector> {
        let more = self.over.iter().chain(&self.minus).chain(&self.ascending);
        iter::once(&self.runs).chain(more)
    }

    /// What is wrong with it, beside its selectors.
    pub(in crate::settings::experiment) fn mistakes(&self) -> Vec<String> {
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

/// What a claim says of its measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Statement {
    /// The value is this one, to within so much.
    Value(f64, f64),
    /// The value is at most this one.
    AtMost(f64),
    /// The value is at least this one.
    AtLeast(f64),
    /// The value grows from one of the subjects to the next.
    Ascending,
}

/// How far a value may be from another: `15 %` of it, or a number in its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// In the value's unit.
    By(f64),
    /// A share of the value.
    Share(f64),
}

impl Tolerance {
    /// In the unit of a value.
    #[must_use]
    pub fn of(self, value: f64) -> f64 {
        match self {
            Self::By(by) => by,
            Self::Share(share) => (value * share).abs(),
        }
    }
}

impl FromStr for Tolerance {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let found = match text.strip_suffix('%') {
            Some(percent) => percent
                .trim()
                .parse()
                .ok()
                .map(|it: f64| Self::Share(it / 100.0)),
            None => text.trim().parse().ok().map(Self::By),
        };
        let is_sound = |it: &Self| match it {
            Self::By(by) | Self::Share(by) => *by > 0.0 && by.is_finite(),
        };
        found
            .filter(is_sound)
            .ok_or_else(|| "expected how far off it may be, as in \"15 %\" or 20".into())
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::By(by) => by.fmt(f),
            Self::Share(share) => write!(f, "{} %", share * 100.0),
        }
    }
}
