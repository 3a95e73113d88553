use pillion_stats::names::run;

use super::{Digest, GroupDigest};
use crate::measure_ref::MeasureRef;

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

impl Subject {
    /// Whether a run of this name is one of these.
    #[must_use]
    pub fn takes(&self, name: &str) -> bool {
        run::has_all(name, &self.runs)
    }

    /// Whether a run is one of these, with `more` in its name besides.
    pub(super) fn is_of(&self, it: &DigestedRun, more: &[String]) -> bool {
        self.takes(&it.name) && run::has_all(&it.name, more)
    }

    /// Whether a run has all in its name that another one has, but for keys that are chosen here.
    pub(super) fn differs_by_choice(&self, name: &str, other: &str) -> bool {
        let is_chosen = |part: &str| {
            let mut chosen = self.runs.iter();
            chosen.any(|it| run::key(it) == run::key(part))
        };
        run::has_all(name, run::parts(other).filter(|part| !is_chosen(part)))
    }

    /// The subject's group in a run.
    pub(super) fn group<'a>(&self, run: &'a DigestedRun) -> Option<&'a GroupDigest> {
        let groups = &run.digest.groups;
        match (self.group.as_str(), groups.len()) {
            ("", 1) => groups.values().next(),
            (name, _) => groups.get(name),
        }
    }

    pub(super) fn value(&self, run: &DigestedRun, measure: &MeasureRef) -> Option<f64> {
        self.group(run)?.value(measure)
    }
}
