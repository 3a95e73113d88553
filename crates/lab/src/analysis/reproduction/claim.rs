use std::iter;

use super::answer::Answer;
use super::{DigestedRun, Estimate, Judged, Subject, Verdict};
use crate::measure_ref::MeasureRef;
use crate::run_key::{RunKey, Selector};

/// What was published of a measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// What is claimed, in a few words.
    pub what: String,
    /// Where the claim was published.
    pub source: String,
    /// The measure.
    pub measure: MeasureRef,
    /// What is measured.
    pub subject: Subject,
    /// In proportion to what: of the same run where that is one of them, and else of the run that
    /// differs from it in nothing but what is asked of both.
    pub over: Option<Subject>,
    /// The measure of that, if it is another one.
    pub over_measure: Option<MeasureRef>,
    /// What is taken off it: of a run as with `over`.
    pub minus: Option<Subject>,
    /// What is said of the measure.
    pub statement: Statement,
}

/// What a claim says.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// The value is this one, to within so much.
    Value(f64, f64),
    /// The value is at most this one.
    AtMost(f64),
    /// The value is at least this one.
    AtLeast(f64),
    /// The value grows from one subject to the next.
    Ascending(Vec<Subject>),
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
            match self.statement {
                Statement::Value(value, _) => (mean - value).abs(),
                Statement::AtMost(_) => mean,
                Statement::AtLeast(_) => -mean,
                Statement::Ascending(_) => 0.0,
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

    pub(super) fn subjects(&self) -> Vec<&Subject> {
        match &self.statement {
            Statement::Ascending(subjects) => subjects.iter().collect(),
            _ => vec![&self.subject],
        }
    }

    /// All that it is judged by.
    fn measured(&self) -> impl Iterator<Item = &Subject> {
        let bases = self.over.iter().chain(&self.minus);
        self.subjects().into_iter().chain(bases)
    }

    /// Whether a run of this name, with `more` in it, is one that it is judged by.
    pub(super) fn takes(&self, name: &RunKey, more: &Selector) -> bool {
        more.takes(name) && self.measured().any(|subject| subject.runs.takes(name))
    }

    /// How many runs have nothing of what these estimates are of.
    pub(super) fn without(
        &self,
        runs: &[DigestedRun],
        more: &Selector,
        estimates: &[Estimate],
    ) -> usize {
        let asked = self.subjects().into_iter();
        let asked = asked.flat_map(|it| runs.iter().filter(move |run| it.is_of(run, more)));
        let measured: usize = estimates.iter().map(|it| it.runs).sum();
        asked.count().saturating_sub(measured)
    }

    /// Whether there is a run of each subject, with what it is compared with.
    fn were_made(&self, runs: &[DigestedRun], more: &Selector) -> bool {
        let has_bases = |run: &DigestedRun| {
            let mut bases = self.over.iter().chain(&self.minus);
            bases.all(|base| base_of(run, base, runs, more).is_some())
        };
        self.subjects().into_iter().all(|subject| {
            let mut made = runs.iter().filter(|run| subject.is_of(run, more));
            made.any(has_bases)
        })
    }

    /// One for each subject; none if one of them was not run, or has no such measure.
    fn estimates(&self, runs: &[DigestedRun], more: &Selector) -> Vec<Estimate> {
        let subjects = self.subjects();
        let all = subjects.into_iter().map(|subject| {
            let values = runs.iter().filter(|run| subject.is_of(run, more));
            let values = values.filter_map(|run| {
                let value = subject.value(run, &self.measure)?;
                let of_base = |base: &Subject, measure: &MeasureRef| {
                    base.value(base_of(run, base, runs, more)?, measure)
                };
                let value = match (&self.over, &self.minus) {
                    (Some(over), _) => {
                        let measure = self.over_measure.as_ref().unwrap_or(&self.measure);
                        value / of_base(over, measure)?
                    }
                    (None, Some(minus)) => value - of_base(minus, &self.measure)?,
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
        Some(match &self.statement {
            Statement::Value(value, within) => Answer::within(first, *value, *within),
            Statement::AtMost(most) => Answer::at_most(first, *most),
            Statement::AtLeast(least) => Answer::at_least(first, *least),
            Statement::Ascending(_) => {
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
    base: &Subject,
    runs: &'a [DigestedRun],
    more: &Selector,
) -> Option<&'a DigestedRun> {
    let is_base =
        |it: &&DigestedRun| base.is_of(it, more) && base.differs_by_choice(&it.name, &run.name);
    iter::once(run).chain(runs).find(is_base)
}
