//! Seeds that make no difference.

use std::collections::BTreeMap;

use super::DigestedRun;
use crate::run_key::Part;

/// What is said of runs that differ by their seed, and give the same.
pub(super) const ONE_TEST: &str =
    "every seed gives the same: they are one test, and an interval over them says nothing";

/// The names of runs of which each other seed gives the same as well, to the last bit.
pub(super) fn of_one_test(runs: &[DigestedRun]) -> Vec<&str> {
    let mut by_seed: BTreeMap<Vec<&Part>, Vec<&DigestedRun>> = BTreeMap::new();
    for it in runs {
        let alike = it.name.without_seed().collect();
        by_seed.entry(alike).or_default().push(it);
    }
    let alike = by_seed.into_values().filter(|seeds| {
        let [first, others @ ..] = &seeds[..] else {
            return false;
        };
        !others.is_empty()
            && others
                .iter()
                .all(|it| it.digest.groups == first.digest.groups)
    });
    alike.flatten().map(|run| run.name.as_str()).collect()
}
