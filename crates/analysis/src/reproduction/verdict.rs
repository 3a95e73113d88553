use serde::Serialize;

use super::{Digest, Estimate, GroupDigest};

/// A run, and what is kept of it.
#[derive(Debug, Clone)]
pub struct DigestedRun {
    /// The run's name, as in `plain,loss=2,seed=1`.
    pub name: String,
    /// What is kept of the run.
    pub digest: Digest,
}

/// A measure of a group in certain runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Subject {
    /// What the runs have in their names.
    pub runs: Vec<String>,
    /// The group; empty where a run has but one.
    pub group: String,
}

/// What was published of a measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// What is claimed, in a few words.
    pub what: String,
    /// Where the claim was published.
    pub source: String,
    /// The measure, as [`GroupDigest::value`](super::GroupDigest::value) knows it.
    pub measure: String,
    /// What is measured.
    pub subject: Subject,
    /// In proportion to what: of the same seed, and of the same run where that is one of them.
    pub over: Option<Subject>,
    /// What is taken off it: of the same seed.
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
    /// The runs that it takes were not made.
    NotRun,
}

/// A claim, judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The measure today; of an order, of each subject.
    pub today: Vec<Estimate>,
    /// The measure with each cause as it was then; of an order, of each subject.
    pub causes: Vec<Vec<Estimate>>,
    /// The first cause with which the claim holds.
    pub shown_by: Option<usize>,
    /// What follows.
    pub verdict: Verdict,
}

impl Claim {
    /// What the runs say of it. `today` is what names of runs of today have, `causes` what those
    /// have in which one thing is as it was then.
    #[must_use]
    pub fn judge(&self, runs: &[DigestedRun], today: &[String], causes: &[Vec<String>]) -> Judged {
        let of_today = self.estimates(runs, today);
        let of_causes: Vec<_> = causes
            .iter()
            .map(|cause| self.estimates(runs, cause))
            .collect();
        let holds = |estimates: &Vec<Estimate>| self.holds(estimates);
        let shown_by = of_causes.iter().position(holds);
        let verdict = match (of_today.is_empty(), holds(&of_today), shown_by) {
            (true, ..) => Verdict::NotRun,
            (_, true, _) => Verdict::Near,
            (_, false, Some(_)) => Verdict::Changed,
            (_, false, None) => Verdict::Miss,
        };
        Judged {
            today: of_today,
            causes: of_causes,
            shown_by: shown_by.filter(|_| verdict == Verdict::Changed),
            verdict,
        }
    }

    /// One for each subject; none if one of them was not run.
    fn estimates(&self, runs: &[DigestedRun], more: &[String]) -> Vec<Estimate> {
        let subjects = match &self.statement {
            Statement::Ascending(subjects) => subjects.iter().collect(),
            _ => vec![&self.subject],
        };
        let all = subjects.into_iter().map(|subject| {
            let values = runs.iter().filter(|run| subject.is_of(run, more));
            let values = values.filter_map(|run| {
                let value = subject.value(run, &self.measure)?;
                let of_base = |base: &Subject| {
                    let is_base = |it: &&DigestedRun| base.is_of(it, more) && seed(it) == seed(run);
                    // The run itself, where another of its groups is meant.
                    let run = std::iter::once(run).chain(runs).find(is_base)?;
                    base.value(run, &self.measure)
                };
                match (&self.over, &self.minus) {
                    (Some(over), _) => Some(value / of_base(over)?),
                    (None, Some(minus)) => Some(value - of_base(minus)?),
                    (None, None) => Some(value),
                }
            });
            Estimate::of(&values.collect::<Vec<_>>())
        });
        all.collect::<Option<_>>().unwrap_or_default()
    }

    fn holds(&self, estimates: &[Estimate]) -> bool {
        let Some(first) = estimates.first() else {
            return false;
        };
        match &self.statement {
            Statement::Value(value, within) => (first.mean - value).abs() <= *within,
            Statement::AtMost(most) => first.mean <= *most,
            Statement::AtLeast(least) => first.mean >= *least,
            Statement::Ascending(_) => estimates.is_sorted_by(|one, next| one.mean < next.mean),
        }
    }
}

impl Subject {
    /// Whether a run is one of these, with `more` in its name besides.
    pub(super) fn is_of(&self, run: &DigestedRun, more: &[String]) -> bool {
        let mut parts = self.runs.iter().chain(more);
        parts.all(|part| run.name.split(',').any(|its| its == part))
    }

    /// The subject's group in a run.
    pub(super) fn group<'a>(&self, run: &'a DigestedRun) -> Option<&'a GroupDigest> {
        let groups = &run.digest.groups;
        match (self.group.as_str(), groups.len()) {
            ("", 1) => groups.values().next(),
            (name, _) => groups.get(name),
        }
    }

    pub(super) fn value(&self, run: &DigestedRun, measure: &str) -> Option<f64> {
        self.group(run)?.value(measure)
    }
}

fn seed(run: &DigestedRun) -> Option<&str> {
    run.name.split(',').find(|part| part.starts_with("seed="))
}
