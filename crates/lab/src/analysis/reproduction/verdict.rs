//! Judges claims: compares each published number with the mean over seeds.

use std::iter;

use pillion_stats::measure::mean_with_interval;
use serde::Serialize;

use super::MeasuredRun;
use crate::measure_ref::MeasureRef;
use crate::run_key::{Part, RunKey, Selector};
use crate::settings::experiment::{Cause, Claim, ClaimKind, Statement};

/// The result of judging a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The claim holds on the current kernel.
    Near,
    /// The claim holds only with a cause that a source documents for the published set-up.
    Changed,
    /// The claim holds only with a cause that no source documents.
    Hypothesis,
    /// The claim holds neither on the current kernel nor with any cause.
    Miss,
    /// A bound lies within the interval, or two intervals overlap; more seeds are needed.
    Undecided,
    /// Runs are missing: those with the current kernel, or those with a cause while the claim does
    /// not hold otherwise.
    NotRun,
    /// The runs exist but have no such measure, no such group, or no event to measure.
    NotMeasured,
}

impl Verdict {
    /// All verdicts, in the order of reports.
    pub const ALL: [Self; 7] = [
        Self::Near,
        Self::Changed,
        Self::Hypothesis,
        Self::Miss,
        Self::Undecided,
        Self::NotMeasured,
        Self::NotRun,
    ];

    /// Returns the verdict as shown in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Changed => "changed",
            Self::Hypothesis => "hypothesis",
            Self::Miss => "miss",
            Self::Undecided => "undecided",
            Self::NotRun => "not run",
            Self::NotMeasured => "not measured",
        }
    }
}

/// A claim with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JudgedClaim {
    /// The measure on the current kernel; for an order, one estimate per subject.
    pub baseline: Vec<Estimate>,
    /// The number of runs with the current kernel that lack the value.
    pub runs_without_value: usize,
    /// The measure with each cause; for an order, one estimate per subject.
    pub causes: Vec<Vec<Estimate>>,
    /// Whether the claim holds with each cause; `None` if runs are missing, or more seeds are
    /// needed.
    pub holds: Vec<Option<bool>>,
    /// The index of the cause to show. It is the first cause with which the claim holds, if that
    /// fails or is undecided on the current kernel. Otherwise it is the first one with which it may
    /// hold.
    pub cause: Option<usize>,
    /// The verdict.
    pub verdict: Verdict,
    /// The measure in the other case (`against`), on the kernel or with the cause that decides the
    /// verdict, otherwise on the current kernel; for an order, one estimate per subject.
    pub other_case: Vec<Estimate>,
    /// Whether the claim also holds in the other case; `None` if it has no other case, does not hold
    /// in its own, or more runs are needed.
    pub holds_in_other_case: Option<bool>,
    /// The kind: that of the file, but a published claim that also holds in its other case is a
    /// self-check.
    pub kind: ClaimKind,
}

impl Claim {
    /// Judges the claim by these runs. `baseline` selects runs with the current kernel, and
    /// `causes` those with one changed condition.
    #[must_use]
    pub fn judge(
        &self,
        runs: &[MeasuredRun],
        baseline: &Selector,
        causes: &[Cause],
    ) -> JudgedClaim {
        let current_estimates = self.estimates(runs, baseline);
        let cause_estimates: Vec<_> = causes
            .iter()
            .map(|cause| self.estimates(runs, &cause.runs))
            .collect();
        let checks: Vec<_> = cause_estimates.iter().map(|it| self.holds(it)).collect();
        let is_not_run = |(check, cause): (&Option<_>, &Cause)| {
            check.is_none() && !self.runs_exist(runs, &cause.runs)
        };
        let some_not_run = checks.iter().zip(causes).any(is_not_run);
        let first = |check| checks.iter().position(|it| *it == check);
        let is_documented = |index: &usize| !causes[*index].source.is_empty();
        let yes = Some(ClaimCheck::Yes);
        let documented =
            (0..causes.len()).find(|index| checks[*index] == yes && is_documented(index));
        let (holds, may_hold) = (
            documented.or(first(yes)),
            first(Some(ClaimCheck::Undecided)),
        );
        let (verdict, cause) = match self.holds(&current_estimates) {
            None if self.runs_exist(runs, baseline) => (Verdict::NotMeasured, None),
            None => (Verdict::NotRun, None),
            Some(ClaimCheck::Yes) => (Verdict::Near, None),
            Some(ClaimCheck::Undecided) => (Verdict::Undecided, holds),
            Some(ClaimCheck::No) if documented.is_some() => (Verdict::Changed, documented),
            Some(ClaimCheck::No) if holds.is_some() => (Verdict::Hypothesis, holds),
            Some(ClaimCheck::No) if some_not_run => (Verdict::NotRun, None),
            Some(ClaimCheck::No) if may_hold.is_some() => (Verdict::Undecided, may_hold),
            Some(ClaimCheck::No) => (Verdict::Miss, None),
        };
        JudgedClaim {
            runs_without_value: self.runs_without_value(runs, baseline, &current_estimates),
            baseline: current_estimates,
            causes: cause_estimates,
            holds: checks
                .iter()
                .map(|it| it.and_then(ClaimCheck::as_bool))
                .collect(),
            cause,
            verdict,
            other_case: Vec::new(),
            holds_in_other_case: None,
            kind: self.kind(),
        }
    }

    /// Evaluates a claim that holds in its other case as well: there, with the condition that
    /// decides the verdict, or with the next of `conditions` if that has no runs.
    pub(super) fn judge_other_case(
        &self,
        judged: &mut JudgedClaim,
        runs: &[MeasuredRun],
        conditions: &[&Selector],
    ) {
        let (Some(other), Some(against)) = (self.in_other_case(), &self.against) else {
            return;
        };
        let conditions = conditions.iter();
        let mut estimates = conditions
            .map(|condition| other.estimates(runs, &condition.without_keys_of(&against.runs)))
            .filter(|estimates| !estimates.is_empty());
        judged.other_case = estimates.next().unwrap_or_default();
        let check = self.holds(&judged.other_case);
        judged.holds_in_other_case = check.and_then(ClaimCheck::as_bool);
        if judged.kind == ClaimKind::Published && judged.holds_in_other_case == Some(true) {
            judged.kind = ClaimKind::SelfCheck;
        }
    }

    /// Returns the index of the cause whose numbers are shown: the named one, for a miss the
    /// nearest one, otherwise the first.
    pub(super) fn shown_cause(&self, judged: &JudgedClaim) -> usize {
        let distance = |estimates: &Vec<Estimate>| {
            let mean = estimates.first().map_or(f64::NAN, |it| it.mean);
            match self.statement() {
                Statement::Value(value, _) => (mean - value).abs(),
                Statement::AtMost(_) => mean,
                Statement::AtLeast(_) => -mean,
                Statement::Ascending => 0.0,
            }
        };
        let causes = judged.causes.iter().enumerate();
        let nearest = causes.min_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)));
        let nearest = nearest.filter(|_| judged.verdict == Verdict::Miss);
        judged
            .cause
            .or(nearest.map(|(index, _)| index))
            .unwrap_or(0)
    }

    /// Whether the claim is judged by the run with this name and `extra`.
    pub(super) fn matches(&self, name: &RunKey, extra: &Selector) -> bool {
        extra.matches(name) && self.measured().any(|(runs, _)| runs.matches(name))
    }

    /// Returns the number of runs that have no value in these estimates.
    pub(super) fn runs_without_value(
        &self,
        runs: &[MeasuredRun],
        extra: &Selector,
        estimates: &[Estimate],
    ) -> usize {
        let statistic = self.subjects().iter();
        let statistic =
            statistic.flat_map(|it| runs.iter().filter(move |run| run.belongs_to(it, extra)));
        let measured: usize = estimates.iter().map(|it| it.runs).sum();
        statistic.count().saturating_sub(measured)
    }

    /// Whether each subject has a run, together with the run that it is compared with.
    fn runs_exist(&self, runs: &[MeasuredRun], extra: &Selector) -> bool {
        let bases = self.base().map(|(runs, _)| runs);
        let bases: Vec<_> = bases.into_iter().chain(self.minus.clone()).collect();
        let has_bases = |run: &MeasuredRun| {
            let mut bases = bases.iter();
            bases.all(|base| base_run(run, base, runs, extra).is_some())
        };
        self.subjects().iter().all(|subject| {
            let mut series = runs.iter().filter(|run| run.belongs_to(subject, extra));
            series.any(has_bases)
        })
    }

    /// Returns one estimate per subject; empty if a subject has no run or no such measure.
    fn estimates(&self, runs: &[MeasuredRun], extra: &Selector) -> Vec<Estimate> {
        let ratio_to = self.base();
        let all = self.subjects().iter().map(|subject| {
            let values = runs.iter().filter(|run| run.belongs_to(subject, extra));
            let values = values.filter_map(|run| {
                let value = run.value(&self.group, &self.measure)?;
                let of_base = |base: &Selector, group: &str, measure: &MeasureRef| {
                    base_run(run, base, runs, extra)?.value(group, measure)
                };
                let value = match (&ratio_to, &self.minus) {
                    (Some((ratio_to, group)), _) => {
                        let measure = self.ratio_to_measure.as_ref().unwrap_or(&self.measure);
                        value / of_base(ratio_to, group, measure)?
                    }
                    (None, Some(minus)) => value - of_base(minus, &self.group, &self.measure)?,
                    (None, None) => value,
                };
                // A ratio to 0 is undefined.
                value.is_finite().then_some(value)
            });
            Estimate::from_values(&values.collect::<Vec<_>>())
        });
        all.collect::<Option<_>>().unwrap_or_default()
    }

    /// Checks the claim; `None` without estimates. A value with a tolerance is judged by its mean,
    /// unless half of the interval is wider than the tolerance and crosses its edge. Bounds and
    /// orders are judged with the interval.
    fn holds(&self, estimates: &[Estimate]) -> Option<ClaimCheck> {
        let first = estimates.first()?;
        Some(match self.statement() {
            Statement::Value(value, within) => ClaimCheck::near(first, value, within),
            Statement::AtMost(max) => ClaimCheck::at_most(first, max),
            Statement::AtLeast(min) => ClaimCheck::at_least(first, min),
            Statement::Ascending => {
                let checks = estimates.windows(2).map(|pair| pair[0].is_below(&pair[1]));
                let checks: Vec<_> = checks.collect();
                match () {
                    () if checks.contains(&ClaimCheck::No) => ClaimCheck::No,
                    () if checks.contains(&ClaimCheck::Undecided) => ClaimCheck::Undecided,
                    () => ClaimCheck::Yes,
                }
            }
        })
    }
}

/// Returns the run for comparison. It is the run itself if another of its groups is compared,
/// otherwise the run that differs only in the selected keys.
fn base_run<'a>(
    run: &'a MeasuredRun,
    base: &Selector,
    runs: &'a [MeasuredRun],
    extra: &Selector,
) -> Option<&'a MeasuredRun> {
    let is_base = |it: &&MeasuredRun| {
        it.belongs_to(base, extra) && differs_only_in_selected_keys(base, &it.name, &run.name)
    };
    iter::once(run).chain(runs).find(is_base)
}

/// Whether two run names are the same except for the keys of the selector.
fn differs_only_in_selected_keys(chosen: &Selector, name: &RunKey, other: &RunKey) -> bool {
    let is_chosen = |part: &Part| chosen.parts().iter().any(|it| it.key() == part.key());
    let mut others = other.parts().filter(|part| !is_chosen(part));
    others.all(|part| name.has(part))
}

/// Returns the tolerance for decimal numbers, which are not exact in binary.
fn rounding_tolerance(number: f64) -> f64 {
    number.abs() * 1e-9
}

/// Whether a claim holds in some runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimCheck {
    Yes,
    No,
    /// More runs are needed.
    Undecided,
}

impl ClaimCheck {
    /// Checks that a value is at most `max`. A single run counts as exact.
    pub(super) fn at_most(value: &Estimate, max: f64) -> Self {
        Self::not_above_zero(
            value.mean - max - rounding_tolerance(max),
            value.half.unwrap_or(0.0),
        )
    }

    /// Checks that a value is at least `min`.
    pub(super) fn at_least(value: &Estimate, min: f64) -> Self {
        Self::not_above_zero(
            min - value.mean - rounding_tolerance(min),
            value.half.unwrap_or(0.0),
        )
    }

    /// Checks that a value differs from `this` by at most `within`.
    pub(super) fn near(value: &Estimate, this: f64, within: f64) -> Self {
        let distance = (value.mean - this).abs() - rounding_tolerance(this);
        let half = value.half.unwrap_or(0.0);
        match distance <= within {
            _ if half > within && (distance - half <= within && distance + half > within) => {
                Self::Undecided
            }
            true => Self::Yes,
            false => Self::No,
        }
    }

    /// Checks that a value with this mean and half interval is at most 0.
    fn not_above_zero(mean: f64, half: f64) -> Self {
        match mean <= 0.0 {
            true if mean + half <= 0.0 => Self::Yes,
            false if mean - half > 0.0 => Self::No,
            _ => Self::Undecided,
        }
    }

    fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Undecided => Self::Undecided,
        }
    }

    pub(super) fn as_bool(self) -> Option<bool> {
        match self {
            Self::Yes => Some(true),
            Self::No => Some(false),
            Self::Undecided => None,
        }
    }
}

impl Estimate {
    /// Checks that another value is larger, considering both intervals.
    pub(super) fn is_below(&self, other: &Self) -> ClaimCheck {
        let half = |it: &Self| it.half.unwrap_or(0.0);
        let both = half(self).hypot(half(other));
        ClaimCheck::not_above_zero(other.mean - self.mean, both).not()
    }
}

/// A value over several seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean over runs.
    pub mean: f64,
    /// Half of the 95 % interval of the mean, by Student's t; `None` with a single run.
    pub half: Option<f64>,
    /// The number of runs.
    pub runs: usize,
}

impl Estimate {
    /// Estimates from one value per run, each with its own seed; `None` without values.
    #[must_use]
    pub fn from_values(values: &[f64]) -> Option<Self> {
        let runs = values.len();
        let (mean, half) = mean_with_interval(values)?;
        Some(Self { mean, half, runs })
    }

    /// Returns mean, both ends of the interval and the number of runs as comma-separated values.
    /// Without an estimate, all but the last are empty.
    pub(super) fn csv(estimate: Option<&Self>) -> String {
        estimate.map_or_else(
            || ",,,0".to_owned(),
            |it| format!("{},{},{},{}", it.mean, it.low(), it.high(), it.runs),
        )
    }

    /// Returns the lower end of the interval.
    #[must_use]
    pub fn low(&self) -> f64 {
        self.mean - self.half.unwrap_or(0.0)
    }

    /// Returns the upper end of the interval.
    #[must_use]
    pub fn high(&self) -> f64 {
        self.mean + self.half.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_uses_students_t() {
        let estimate = Estimate::from_values(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((estimate.mean, estimate.runs), (3.0, 5));
        // 2.776 * sqrt(2.5) / sqrt(5)
        assert!((estimate.half.unwrap() - 1.963).abs() < 1e-3);
        assert_eq!(Estimate::from_values(&[7.0]).unwrap().half, None);
        assert_eq!(Estimate::from_values(&[]), None);
    }
}
