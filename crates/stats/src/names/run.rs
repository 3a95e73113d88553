//! Names of an experiment's runs: the variant and what else is varied, part by part, and the seed, as in
//! `plain,loss=2,seed=1`.

const SEED: &str = "seed";

/// The parts of a run's name.
pub fn parts(run: &str) -> impl Iterator<Item = &str> {
    run.split(',')
}

/// The parts of a run's name but the seed: those of all runs that differ by it alone.
pub fn parts_without_seed(run: &str) -> impl Iterator<Item = &str> {
    parts(run).filter(|part| !is_seed(part))
}

/// Whether a run has all these parts in its name.
#[must_use]
pub fn has_all(run: &str, wanted: impl IntoIterator<Item = impl AsRef<str>>) -> bool {
    let mut wanted = wanted.into_iter();
    wanted.all(|part| parts(run).any(|its| its == part.as_ref()))
}

/// What a part is a value of; `None` of a variant, which stands alone.
#[must_use]
pub fn key(part: &str) -> Option<&str> {
    part.split_once('=').map(|(key, _)| key)
}

/// The parts that give a key a value in the names of these runs, each once, in the runs' order.
pub fn values<'a>(runs: impl IntoIterator<Item = &'a str>, of: &str) -> Vec<&'a str> {
    let mut values = Vec::new();
    let parts = runs.into_iter().flat_map(parts);
    for part in parts.filter(|part| key(part) == Some(of)) {
        if !values.contains(&part) {
            values.push(part);
        }
    }
    values
}

/// The number that a parameter has in a run's name; of values with a second number, as in `itt=30:3`, the
/// first.
#[must_use]
pub fn number(run: &str, parameter: &str) -> Option<f64> {
    let part = parts(run).find(|part| key(part) == Some(parameter))?;
    let (_, value) = part.split_once('=')?;
    value.split(':').next()?.parse().ok()
}

/// Whether a part is the seed.
#[must_use]
pub fn is_seed(part: &str) -> bool {
    key(part) == Some(SEED)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "plain,loss=2,itt=30:3,seed=1";

    #[test]
    fn a_run_has_the_parts_of_its_name_whole() {
        assert!(has_all(RUN, ["loss=2", "plain"]));
        assert!(has_all(RUN, [""; 0]));
        for other in ["loss", "loss=22", "lain", "2", ""] {
            assert!(!has_all(RUN, ["plain", other]), "{other}");
        }
    }

    #[test]
    fn runs_that_differ_by_their_seed_are_alike_without() {
        let without: Vec<_> = parts_without_seed(RUN).collect();
        assert_eq!(without, ["plain", "loss=2", "itt=30:3"]);
        assert!(!is_seed("seeds=3"));
    }

    #[test]
    fn numbers_are_found_by_what_they_are_of() {
        assert_eq!(number(RUN, "loss"), Some(2.0));
        assert_eq!(number(RUN, "itt"), Some(30.0));
        assert_eq!(number(RUN, "plain"), None);
        assert_eq!(number("queue=red", "queue"), None);
        assert_eq!(key("plain"), None);
    }

    #[test]
    fn values_come_once_each_as_runs_have_them() {
        let runs = ["plain,n=8,seed=1", "n=2,plain", "n=8,seed=2", "plain"];
        assert_eq!(values(runs, "n"), ["n=8", "n=2"]);
        assert!(values(runs, "plain").is_empty());
    }
}
