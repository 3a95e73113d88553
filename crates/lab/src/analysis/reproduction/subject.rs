use super::{Digest, GroupDigest};
use crate::measure_ref::MeasureRef;
use crate::run_key::{Part, RunKey, Selector};

/// A run, and what is kept of it.
#[derive(Debug, Clone)]
pub struct DigestedRun {
    /// The run's name, as in `plain,loss=2,seed=1`.
    pub name: RunKey,
    /// What is kept of the run.
    pub digest: Digest,
}

/// A measure of a group in certain runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Subject {
    /// The runs.
    pub runs: Selector,
    /// The group; empty where a run has but one.
    pub group: String,
}

impl Subject {
    /// Whether a run is one of these, with `more` in its name besides.
    pub(super) fn is_of(&self, it: &DigestedRun, more: &Selector) -> bool {
        self.runs.takes(&it.name) && more.takes(&it.name)
    }

    /// Whether a run has all in its name that another one has, but for keys that are chosen here.
    pub(super) fn differs_by_choice(&self, name: &RunKey, other: &RunKey) -> bool {
        let is_chosen = |part: &Part| {
            let mut chosen = self.runs.parts().iter();
            chosen.any(|it| it.key() == part.key())
        };
        let mut others = other.parts().filter(|part| !is_chosen(part));
        others.all(|part| name.has(part))
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
