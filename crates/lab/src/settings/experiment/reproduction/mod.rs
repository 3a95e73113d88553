//! `[reproduction]` of an experiment file: claims, tables and figures, and the runs that they need.

pub(super) mod check;
mod figure;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::{fmt, iter, slice};

use clap::ValueEnum;
use pillion_cli::settings::times::PositiveDuration;
use pillion_cli::settings::{BadInput, text};
use serde::{Deserialize, Deserializer, Serialize};

use crate::settings::numbers;
use crate::{MeasureRef, Part};

pub use crate::Selector;
pub use figure::{
    Cell, Curve, Expected, FigureKind, Heading, Line, PublishedCell, PublishedTable, Sketch,
};

/// Share of an experiment's runs that is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunScale {
    /// First results within minutes.
    Quick,
    /// Runs that each published figure needs, with intervals over seeds.
    #[default]
    Default,
    /// All values that the papers varied.
    Full,
}

/// Claims, tables and figures of an experiment.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Reproduction {
    /// Publication, as in `LCN 2015, figure 4`.
    pub source: String,
    /// Published finding, in a sentence.
    pub finding: String,
    /// Kind of claims that have none.
    pub kind: ClaimKind,
    /// Selector of the runs on the current kernel, as in `kernel=current`.
    pub baseline: Selector,
    /// Conditions that may explain a difference from the published result.
    pub causes: Vec<Cause>,
    /// Runs of the quick and the default scale.
    pub selection: BTreeMap<RunScale, Selection>,
    /// Claims to check.
    #[serde(rename = "claim")]
    pub claims: Vec<Claim>,
    /// Tables to fill.
    pub table: Vec<PublishedTable>,
    /// Figures to draw.
    pub figure: Vec<Sketch>,
}

/// Possible reason for a difference from the published result; its runs show whether it is one.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cause {
    /// Selector of the runs under this condition. It replaces the baseline's.
    pub runs: Selector,
    /// Condition, as in `losses are recovered as in Linux 3.16`.
    pub description: String,
    /// Place that documents the condition for the published set-up, as in `thesis, table 5.1`.
    /// Empty: the condition is a hypothesis.
    pub source: String,
}

/// Origin of a claim. Reports count each kind separately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimKind {
    /// Statement of a paper that a run can contradict.
    Published,
    /// Computed from published numbers; `reason` has the arithmetic.
    Derived,
    /// Check of the traffic generator, of a formula or of a configured value.
    SelfCheck,
    /// Expectation of pillion's authors, without a paper.
    #[default]
    Expectation,
}

impl ClaimKind {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; 4] = [
        Self::Published,
        Self::Derived,
        Self::SelfCheck,
        Self::Expectation,
    ];

    /// Returns the kind as in files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Derived => "derived",
            Self::SelfCheck => "self-check",
            Self::Expectation => "expectation",
        }
    }
}

/// Other case that a claim must tell from its own: the claim is evaluated there as well, and a
/// published claim that also holds there counts as a self-check.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Against {
    /// Parts that replace those of the claim's runs, as in `tcp`.
    pub runs: Selector,
    /// Group that replaces the claim's; empty: the same group.
    pub group: String,
    /// Published value of the other case, in place of runs.
    pub value: Option<f64>,
}

/// Selection of an experiment's runs.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Selection {
    /// Time of sending that replaces the experiment's.
    pub duration: Option<PositiveDuration>,
    /// Number of seeds that replaces the experiment's.
    #[serde(deserialize_with = "numbers::some_repetitions")]
    pub repetitions: Option<u32>,
    /// Values to run, as in `loss=10`. Keys without an entry run with all their values.
    #[serde(deserialize_with = "parts")]
    pub only: Vec<Part>,
    /// Values of `only` that run on the current kernel only, without causes, because no number is
    /// published for them.
    #[serde(deserialize_with = "parts")]
    pub baseline_only: Vec<Part>,
    /// Further runs on the current kernel, regardless of `only`.
    pub extra_runs: Vec<Selector>,
}

fn parts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Part>, D::Error> {
    let parts = Vec::<String>::deserialize(from)?;
    Ok(parts.iter().map(|part| part.as_str().into()).collect())
}

/// Published number, or an order of numbers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    /// Description of the number, in a few words.
    pub description: String,
    /// Kind; missing: the experiment's.
    #[serde(default)]
    pub kind: Option<ClaimKind>,
    /// Source; empty: the experiment's.
    #[serde(default)]
    pub source: String,
    /// Words of the source; for a figure or table, what it shows.
    #[serde(default)]
    pub quote: String,
    /// Other case in which the claim must not hold.
    #[serde(default)]
    pub against: Option<Against>,
    /// Measure, as in `ack_latency_ms p97`.
    pub measure: MeasureRef,
    /// Group of streams; empty if the runs have one group only.
    #[serde(default)]
    pub group: String,
    /// Selector of the measured runs.
    #[serde(default)]
    pub runs: Selector,
    /// Published value in the measure's unit.
    #[serde(default)]
    pub value: Option<f64>,
    /// Accepted distance from `value`.
    #[serde(default, deserialize_with = "text::option::deserialize")]
    pub tolerance: Option<Tolerance>,
    /// Maximum of the measure.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// Minimum of the measure.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// Selector of the runs to divide by. A run is divided by itself if the selector matches it,
    /// otherwise by the run that differs only in the parts of both selectors.
    #[serde(default)]
    pub ratio_to: Option<Selector>,
    /// Group to divide by; empty: the same group. The runs are the same unless `ratio_to` is set.
    #[serde(default)]
    pub ratio_to_group: String,
    /// Measure to divide by. Runs and group are the same unless they are set.
    #[serde(default)]
    pub ratio_to_measure: Option<MeasureRef>,
    /// Selector of the runs to subtract, matched like `ratio_to`.
    #[serde(default)]
    pub minus: Option<Selector>,
    /// Selectors of runs in which the measure grows in this order.
    #[serde(default)]
    pub ascending: Vec<Selector>,
    /// Reason for the tolerance, or the origin of the number.
    #[serde(default)]
    pub reason: Option<String>,
}

impl Claim {
    /// Returns the kind that the file gives.
    #[must_use]
    pub fn kind(&self) -> ClaimKind {
        self.kind.unwrap_or_default()
    }

    /// Returns the condition that the measure must meet.
    #[must_use]
    pub fn statement(&self) -> Statement {
        match (self.value, self.at_most, self.at_least) {
            (Some(value), ..) => {
                let tolerance = self.tolerance.map_or(0.0, |tolerance| tolerance.of(value));
                Statement::Value(value, tolerance)
            }
            (_, Some(max), _) => Statement::AtMost(max),
            (.., Some(min)) => Statement::AtLeast(min),
            (None, None, None) => Statement::Ascending,
        }
    }

    /// Returns the selectors of the measured runs, one per value.
    #[must_use]
    pub fn subjects(&self) -> &[Selector] {
        match self.ascending.as_slice() {
            [] => slice::from_ref(&self.runs),
            order => order,
        }
    }

    /// Returns the runs and the group to divide by, if any.
    #[must_use]
    pub fn base(&self) -> Option<(Selector, &str)> {
        let is_relative = self.ratio_to.is_some()
            || !self.ratio_to_group.is_empty()
            || self.ratio_to_measure.is_some();
        let group = match self.ratio_to_group.as_str() {
            "" => &self.group,
            other => other,
        };
        is_relative.then(|| (self.ratio_to.clone().unwrap_or_default(), group))
    }

    /// Returns the selectors and groups that decide the claim.
    pub(crate) fn measured(&self) -> impl Iterator<Item = (Selector, &str)> {
        let all = self.subjects().iter().chain(&self.minus).cloned();
        let all = all.map(|runs| (runs, self.group.as_str()));
        all.chain(self.base())
    }

    /// Returns all selectors of the claim.
    pub(in crate::settings::experiment) fn selectors(&self) -> impl Iterator<Item = &Selector> {
        let more = self
            .ratio_to
            .iter()
            .chain(&self.minus)
            .chain(&self.ascending)
            .chain(self.against.iter().map(|against| &against.runs));
        iter::once(&self.runs).chain(more)
    }

    /// Returns the same claim about the runs and group of `against`; `None` if that has a value or
    /// is missing.
    #[must_use]
    pub fn in_other_case(&self) -> Option<Self> {
        let against = self.against.as_ref().filter(|it| it.value.is_none())?;
        let other = |runs: &Selector| runs.overridden_by(&against.runs);
        Some(Self {
            group: match against.group.as_str() {
                "" => self.group.clone(),
                group => group.to_owned(),
            },
            runs: other(&self.runs),
            ascending: self.ascending.iter().map(other).collect(),
            against: None,
            ..self.clone()
        })
    }

    /// Returns what the kind requires and the claim lacks.
    pub(in crate::settings::experiment) fn kind_mistake(&self, kind: ClaimKind) -> Option<String> {
        let text = match kind {
            ClaimKind::Published if self.quote.is_empty() => {
                "a published claim needs `quote`, the words of its source"
            }
            ClaimKind::Published if self.against.is_none() => {
                "a published claim needs `against`, another case in which it must not hold; give it, or \
                 another `kind`"
            }
            ClaimKind::Derived if self.reason.is_none() => {
                "a derived claim needs `reason`, with the arithmetic"
            }
            ClaimKind::Expectation if !self.quote.is_empty() => {
                "an expectation has no source to quote; remove `quote`, or give another `kind`"
            }
            _ => return None,
        };
        Some(format!("claim `{}`: {text}", self.description))
    }

    /// Returns the mistakes other than those of selectors.
    pub(in crate::settings::experiment) fn mistakes(&self) -> Vec<String> {
        let numbers = [self.value, self.at_most, self.at_least];
        let order = &self.ascending;
        let statements = numbers.iter().flatten().count() + usize::from(!order.is_empty());
        let is_twice = |it: &Selector| order.iter().filter(|other| *other == it).count() > 1;
        let mut measures = [Some(&self.measure), self.ratio_to_measure.as_ref()].into_iter();
        let against = self.against.as_ref();
        let other_value = against.and_then(|it| it.value);
        let checks = [
            (
                measures.any(|it| it.is_some_and(|it| !it.is_value())),
                "the measure has several values; add a statistic, as in \"ack_latency_ms p97\"",
            ),
            (
                statements != 1,
                "give one of `value`, `at-most`, `at-least` and `ascending`",
            ),
            (
                self.value.is_some() && self.tolerance.is_none(),
                "`value` needs `tolerance`, as in \"15 %\" or 20",
            ),
            (
                self.value == Some(0.0) && matches!(self.tolerance, Some(Tolerance::Share(_))),
                "a share of 0 is 0; give `tolerance` as a number in the measure's unit",
            ),
            (
                order.len() == 1 || order.iter().any(is_twice),
                "`ascending` needs two or more different selectors",
            ),
            (
                self.base().is_some() && self.minus.is_some(),
                "both `ratio-to` and `minus` are given; remove one",
            ),
            (
                !self.ascending.is_empty() && !self.runs.parts().is_empty(),
                "`ascending` already names the runs; remove `runs`",
            ),
            (
                self.tolerance.is_some() && self.value.is_none(),
                "`tolerance` needs `value`",
            ),
            (
                numbers
                    .into_iter()
                    .chain([other_value])
                    .flatten()
                    .any(|it| !it.is_finite()),
                "give finite numbers",
            ),
            (
                against.is_some_and(|it| it.value.is_some() == it.has_other_runs()),
                "`against` needs other `runs` or another `group`, or the published `value` of the other case",
            ),
            (
                other_value.is_some() && !order.is_empty(),
                "`ascending` needs `runs` or `group` in `against`",
            ),
            (
                other_value.is_some_and(|it| self.statement().includes(it)),
                "the claim includes the value of the other case; narrow the tolerance or the bound",
            ),
        ];
        let checks = checks.into_iter().filter(|(is_mistake, _)| *is_mistake);
        checks
            .map(|(_, text)| format!("claim `{}`: {text}", self.description))
            .collect()
    }
}

/// Condition of a claim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Statement {
    /// Value and tolerance, in the measure's unit.
    Value(f64, f64),
    /// Maximum.
    AtMost(f64),
    /// Minimum.
    AtLeast(f64),
    /// The measure grows from each subject to the next.
    Ascending,
}

impl Statement {
    /// Returns whether a single value meets the condition.
    #[must_use]
    pub fn includes(&self, number: f64) -> bool {
        match *self {
            Self::Value(value, within) => (number - value).abs() <= within,
            Self::AtMost(max) => number <= max,
            Self::AtLeast(min) => number >= min,
            Self::Ascending => false,
        }
    }
}

impl Against {
    fn has_other_runs(&self) -> bool {
        !self.runs.parts().is_empty() || !self.group.is_empty()
    }
}

/// Accepted distance from a value: `15 %` of it, or a number in its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// Distance in the value's unit.
    By(f64),
    /// Share of the value.
    Share(f64),
}

impl Tolerance {
    /// Returns the distance in the unit of `value`.
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
        let is_valid = |it: &Self| match it {
            Self::By(by) | Self::Share(by) => *by > 0.0 && by.is_finite(),
        };
        found
            .filter(is_valid)
            .ok_or_else(|| "expected the accepted distance, as in \"15 %\" or 20".into())
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
