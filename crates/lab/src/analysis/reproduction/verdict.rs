//! Judges claims by runs: what was published of a measure, beside its mean over seeds.

use std::iter;

use pillion_stats::measure::mean_with_interval;
use serde::Serialize;

use super::DigestedRun;
use crate::measure_ref::MeasureRef;
use crate::run_key::{Part, RunKey, Selector};
use crate::settings::experiment::{Claim, Statement};

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The claim holds on the kernel of today.
    Near,
    /// The claim does not hold but where a cause is as it was then.
    Changed,
    /// The claim does not hold, and no cause is shown.
    Miss,
    /// The intervals reach over the claim's bound, or over each other: more seeds would tell.
    Undecided,
    /// Runs that it takes were not made: those of today, or of a cause where today's do not hold.
    NotRun,
    /// The runs of today were made, and have nothing of it: no such measure, no such group, or nothing
    /// happened that it could be of.
    NotMeasured,
}

impl Verdict {
    /// The verdict in a word or two.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Changed => "changed",
            Self::Miss => "miss",
            Self::Undecided => "undecided",
            Self::NotRun => "not run",
            Self::NotMeasured => "not measured",
        }
    }
}

/// A claim, judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The measure today; of an order, of each subject.
    pub today: Vec<Estimate>,
    /// How many runs of today have nothing of it: no such group, or nothing happened that it could be
    /// of.
    pub without: usize,
    /// The measure with each cause as it was then; of an order, of each subject.
    pub causes: Vec<Vec<Estimate>>,
    /// Whether it holds with each cause; `None` where its runs were not made, or more would tell.
    pub holds: Vec<Option<bool>>,
    /// The cause to be shown: the first with which a claim holds that does not today, or is undecided;
    /// without one, the first with which it may hold.
    pub cause: Option<usize>,
    /// What follows.
    pub verdict: Verdict,
}

impl Claim {
    /// What the runs say of it. `today` is what names of runs of today have, `causes` what those
    /// have in which one thing is as it was then.
    #[must_use]
    pub fn judge(&self, runs: &[DigestedRun], today: &Selector, causes: &[Selector]) -> Judged {
        let of_today = self.estimates(runs, today);
        let of_causes: Vec<_> = causes
            .iter()
            .map(|cause| self.estimates(runs, cause))
            .collect();
        let answers: Vec<_> = of_causes.iter().map(|it| self.holds(it)).collect();
        let is_not_run = |(answer, cause): (&Option<_>, &Selector)| {
            answer.is_none() && !self.were_made(runs, cause)
        };
        let some_not_run = answers.iter().zip(causes).any(is_not_run);
        let first = |answer| answers.iter().position(|it| *it == answer);
        let (holds, may_hold) = (first(Some(Answer::Yes)), first(Some(Answer::Open)));
        let (verdict, cause) = match self.holds(&of_today) {
            None if self.were_made(runs, today) => (Verdict::NotMeasured, None),
            None => (Verdict::NotRun, None),
            Some(Answer::Yes) => (Verdict::Near, None),
            Some(Answer::Open) => (Verdict::Undecided, holds),
            Some(Answer::No) if holds.is_some() => (Verdict::Changed, holds),
            Some(Answer::No) if some_not_run => (Verdict::NotRun, None),
            Some(Answer::No) if may_hold.is_some() => (Verdict::Undecided, may_hold),
            Some(Answer::No) => (Verdict::Miss, None),
        };
        Judged {
            without: self.without(runs, today, &of_today),
            today: of_today,
            causes: of_causes,
            holds: answers
                .iter()
                .map(|it| it.and_then(Answer::known))
                .collect(),
            cause,
            verdict,
        }
    }

    /// The cause whose numbers are shown: the one that is named, of a miss the one that comes nearest,
    /// and else the first.
    pub(super) fn shown_cause(&self, judged: &Judged) -> usize {
        let off = |estimates: &Vec<Estimate>| {
            let mean = estimates.first().map_or(f64::NAN, |it| it.mean);
            match self.statement() {
                Statement::Value(value, _) => (mean - value).abs(),
                Statement::AtMost(_) => mean,
                Statement::AtLeast(_) => -mean,
                Statement::Ascending => 0.0,
            }
        };
        let causes = judged.causes.iter().enumerate();
        let nearest = causes.min_by(|(_, a), (_, b)| off(a).total_cmp(&off(b)));
        let nearest = nearest.filter(|_| judged.verdict == Verdict::Miss);
        judged
            .cause
            .or(nearest.map(|(place, _)| place))
            .unwrap_or(0)
    }

    /// Whether a run of this name, with `more` in it, is one that it is judged by.
    pub(super) fn takes(&self, name: &RunKey, more: &Selector) -> bool {
        more.takes(name) && self.measured().any(|(runs, _)| runs.takes(name))
    }

    /// How many runs have nothing of what these estimates are of.
    pub(super) fn without(
        &self,
        runs: &[DigestedRun],
        more: &Selector,
        estimates: &[Estimate],
    ) -> usize {
        let asked = self.subjects().iter();
        let asked = asked.flat_map(|it| runs.iter().filter(move |run| run.is_of(it, more)));
        let measured: usize = estimates.iter().map(|it| it.runs).sum();
        asked.count().saturating_sub(measured)
    }

    /// Whether there is a run of each subject, with what it is compared with.
    fn were_made(&self, runs: &[DigestedRun], more: &Selector) -> bool {
        let bases = self.base().map(|(runs, _)| runs);
        let bases: Vec<_> = bases.into_iter().chain(self.minus.clone()).collect();
        let has_bases = |run: &DigestedRun| {
            let mut bases = bases.iter();
            bases.all(|base| base_of(run, base, runs, more).is_some())
        };
        self.subjects().iter().all(|subject| {
            let mut made = runs.iter().filter(|run| run.is_of(subject, more));
            made.any(has_bases)
        })
    }

    /// One for each subject; none if one of them was not run, or has no such measure.
    fn estimates(&self, runs: &[DigestedRun], more: &Selector) -> Vec<Estimate> {
        let over = self.base();
        let all = self.subjects().iter().map(|subject| {
            let values = runs.iter().filter(|run| run.is_of(subject, more));
            let values = values.filter_map(|run| {
                let value = run.value(&self.group, &self.measure)?;
                let of_base = |base: &Selector, group: &str, measure: &MeasureRef| {
                    base_of(run, base, runs, more)?.value(group, measure)
                };
                let value = match (&over, &self.minus) {
                    (Some((over, group)), _) => {
                        let measure = self.over_measure.as_ref().unwrap_or(&self.measure);
                        value / of_base(over, group, measure)?
                    }
                    (None, Some(minus)) => value - of_base(minus, &self.group, &self.measure)?,
                    (None, None) => value,
                };
                // In proportion to nothing at all, nothing can be said.
                value.is_finite().then_some(value)
            });
            Estimate::of(&values.collect::<Vec<_>>())
        });
        all.collect::<Option<_>>().unwrap_or_default()
    }

    /// `None` if there are no runs. A value within its tolerance holds by its mean, as the tolerance is
    /// what may lie between, unless chance alone lets it lie further off; what has a bound, or an order,
    /// holds only with the interval.
    fn holds(&self, estimates: &[Estimate]) -> Option<Answer> {
        let first = estimates.first()?;
        Some(match self.statement() {
            Statement::Value(value, within) => Answer::within(first, value, within),
            Statement::AtMost(most) => Answer::at_most(first, most),
            Statement::AtLeast(least) => Answer::at_least(first, least),
            Statement::Ascending => {
                let answers = estimates.windows(2).map(|pair| pair[0].is_below(&pair[1]));
                let answers: Vec<_> = answers.collect();
                match () {
                    () if answers.contains(&Answer::No) => Answer::No,
                    () if answers.contains(&Answer::Open) => Answer::Open,
                    () => Answer::Yes,
                }
            }
        })
    }
}

/// What a run is compared with: the run itself, where another of its groups is meant, or the one that
/// differs from it in nothing but what is asked of both.
fn base_of<'a>(
    run: &'a DigestedRun,
    base: &Selector,
    runs: &'a [DigestedRun],
    more: &Selector,
) -> Option<&'a DigestedRun> {
    let is_base =
        |it: &&DigestedRun| it.is_of(base, more) && differs_by_choice(base, &it.name, &run.name);
    iter::once(run).chain(runs).find(is_base)
}

/// Whether a run has all in its name that another one has, except for keys that the selector chooses.
fn differs_by_choice(chosen: &Selector, name: &RunKey, other: &RunKey) -> bool {
    let is_chosen = |part: &Part| chosen.parts().iter().any(|it| it.key() == part.key());
    let mut others = other.parts().filter(|part| !is_chosen(part));
    others.all(|part| name.has(part))
}

/// Decimal numbers are not exact in binary: what is equal as people write it may differ by so much.
fn slack(number: f64) -> f64 {
    number.abs() * 1e-9
}

/// Whether a claim holds of some runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    No,
    /// There are too few runs to say.
    Open,
}

impl Answer {
    /// Whether a value is at most this one. A single run's is taken for what it is.
    pub(super) fn at_most(value: &Estimate, most: f64) -> Self {
        Self::of(value.mean - most - slack(most), value.half.unwrap_or(0.0))
    }

    /// Whether it is at least this one.
    pub(super) fn at_least(value: &Estimate, least: f64) -> Self {
        Self::of(least - value.mean - slack(least), value.half.unwrap_or(0.0))
    }

    /// Whether it is this one, to within so much.
    pub(super) fn within(value: &Estimate, this: f64, within: f64) -> Self {
        let off = (value.mean - this).abs() - slack(this);
        let half = value.half.unwrap_or(0.0);
        match off <= within {
            _ if half > within && (off - half <= within && off + half > within) => Self::Open,
            true => Self::Yes,
            false => Self::No,
        }
    }

    /// Whether a value is not above 0, of which half of the interval is known.
    fn of(mean: f64, half: f64) -> Self {
        match mean <= 0.0 {
            true if mean + half <= 0.0 => Self::Yes,
            false if mean - half > 0.0 => Self::No,
            _ => Self::Open,
        }
    }

    fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Open => Self::Open,
        }
    }

    pub(super) fn known(self) -> Option<bool> {
        match self {
            Self::Yes => Some(true),
            Self::No => Some(false),
            Self::Open => None,
        }
    }
}

impl Estimate {
    /// Whether another value is larger than this one, for all that their intervals allow.
    pub(super) fn is_below(&self, other: &Self) -> Answer {
        let half = |it: &Self| it.half.unwrap_or(0.0);
        let both = half(self).hypot(half(other));
        Answer::of(other.mean - self.mean, both).not()
    }
}

/// A value over several seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean over runs.
    pub mean: f64,
    /// Half of the interval that holds the mean with a confidence of 95 %, by Student's t; none of
    /// a single run.
    pub half: Option<f64>,
    /// How many runs it is of.
    pub runs: usize,
}

impl Estimate {
    /// Of the values of runs, each with its own seed; none without a run.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let runs = values.len();
        let (mean, half) = mean_with_interval(values)?;
        Some(Self { mean, half, runs })
    }

    /// The mean, both ends of the interval and the number of runs as comma-separated values; empty but
    /// for the last where there is none.
    pub(super) fn csv(estimate: Option<&Self>) -> String {
        estimate.map_or_else(
            || ",,,0".to_owned(),
            |it| format!("{},{},{},{}", it.mean, it.low(), it.high(), it.runs),
        )
    }

    /// The lower end of the interval.
    #[must_use]
    pub fn low(&self) -> f64 {
        self.mean - self.half.unwrap_or(0.0)
    }

    /// The upper end.
    #[must_use]
    pub fn high(&self) -> f64 {
        self.mean + self.half.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_by_students_t() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((estimate.mean, estimate.runs), (3.0, 5));
        // 2.776 * sqrt(2.5) / sqrt(5)
        assert!((estimate.half.unwrap() - 1.963).abs() < 1e-3);
        assert_eq!(Estimate::of(&[7.0]).unwrap().half, None);
        assert_eq!(Estimate::of(&[]), None);
    }
}
