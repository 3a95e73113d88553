//! Names of runs, such as `plain,loss=2,seed=1`: the variant, the varied values, and the seed.

use std::fmt;

use serde::Deserialize;

use crate::settings::parse_time_ms;

const SEED: &str = "seed";

/// Part of a run's name: a variant, as in `plain`, or the value of a parameter, as in `loss=2`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    text: String,
    /// Length of the parameter's name; `None` for a variant.
    key: Option<usize>,
}

impl Part {
    /// Returns the part's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the parameter's name; `None` for a variant.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.map(|length| &self.text[..length])
    }

    /// Returns the parameter's value; `None` for a variant.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.key.map(|length| &self.text[length + 1..])
    }

    /// Returns whether the part is the seed.
    #[must_use]
    pub fn is_seed(&self) -> bool {
        self.key() == Some(SEED)
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            key: text.find('='),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parsed name of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunKey {
    text: String,
    parts: Vec<Part>,
}

impl RunKey {
    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the parts in the order of the name.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter()
    }

    /// Returns the parts without the seed: equal for all repetitions of a run.
    pub fn without_seed(&self) -> impl Iterator<Item = &Part> {
        self.parts().filter(|part| !part.is_seed())
    }

    /// Returns whether the name has this part.
    #[must_use]
    pub fn has(&self, part: &Part) -> bool {
        self.parts.contains(part)
    }

    /// Returns a parameter's value as a number, of `30ms:3ms` the first one; times are in
    /// milliseconds. `None` if the run has no such parameter, or its value is not a number.
    #[must_use]
    pub fn number(&self, parameter: &str) -> Option<f64> {
        let part = self.parts().find(|part| part.key() == Some(parameter))?;
        let first = part.value()?.split(':').next()?;
        first.parse().ok().or_else(|| parse_time_ms(first).ok())
    }
}

impl From<&str> for RunKey {
    fn from(name: &str) -> Self {
        Self {
            text: name.to_owned(),
            parts: name.split(',').map(Part::from).collect(),
        }
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the parts that set a parameter, without duplicates, in the order of the runs.
pub fn values<'a>(runs: impl IntoIterator<Item = &'a RunKey>, of: &str) -> Vec<&'a Part> {
    let mut values = Vec::new();
    let parts = runs.into_iter().flat_map(RunKey::parts);
    for part in parts.filter(|part| part.key() == Some(of)) {
        if !values.contains(&part) {
            values.push(part);
        }
    }
    values
}

/// Selector of runs that have all of these parts, as in `plain,loss=10`; empty: all runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct Selector(Vec<Part>);

impl From<&str> for Selector {
    fn from(text: &str) -> Self {
        let parts = text.split(',').map(str::trim);
        let parts = parts.filter(|part| !part.is_empty());
        parts.map(Part::from).collect()
    }
}

impl From<String> for Selector {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl FromIterator<Part> for Selector {
    fn from_iter<T: IntoIterator<Item = Part>>(parts: T) -> Self {
        Self(parts.into_iter().collect())
    }
}

impl Selector {
    /// Returns whether the selector matches a run.
    #[must_use]
    pub fn matches(&self, run: &RunKey) -> bool {
        self.0.iter().all(|part| run.has(part))
    }

    /// Combines two selectors: the result matches runs that both match.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self([self.parts(), other.parts()].concat())
    }

    /// Replaces parts of the same parameter, and the variant, by those of another selector, and
    /// adds its remaining parts.
    #[must_use]
    pub fn overridden_by(&self, other: &Self) -> Self {
        self.without_keys_of(other).with(other)
    }

    /// Returns the selector without the parameters that another one sets.
    #[must_use]
    pub fn without_keys_of(&self, other: &Self) -> Self {
        let is_set = |part: &&Part| other.0.iter().any(|it| it.key() == part.key());
        let parts = self.0.iter();
        parts.filter(|part| !is_set(part)).cloned().collect()
    }

    /// Replaces one part by another.
    #[must_use]
    pub fn replacing(&self, part: &Part, by: &Part) -> Self {
        let parts = self.0.iter();
        let replaced = parts.map(|it| if it == part { by } else { it });
        replaced.cloned().collect()
    }

    /// Returns the parts.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.0
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.0.iter().map(Part::as_str).collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "plain,loss=2,itt=30ms:3ms,seed=1";

    #[test]
    fn selector_matches_whole_parts_only() {
        let matches = |selector: &str| Selector::from(selector).matches(&RunKey::from(RUN));
        assert!(matches("loss=2, plain"));
        assert!(matches(""));
        for other in ["loss", "loss=22", "lain", "2"] {
            assert!(!matches(&format!("plain,{other}")), "{other}");
        }
    }

    #[test]
    fn overriding_replaces_variant_and_values_of_same_parameter() {
        let overridden = |by: &str| Selector::from("rdb,loss=10").overridden_by(&by.into());
        assert_eq!(overridden("tcp"), "loss=10,tcp".into());
        assert_eq!(overridden("loss=2,n=1"), "rdb,loss=2,n=1".into());
        assert_eq!(overridden(""), "rdb,loss=10".into());
    }

    #[test]
    fn without_seed_drops_seed_only() {
        let run = RunKey::from(RUN);
        let without: Vec<_> = run.without_seed().map(Part::as_str).collect();
        assert_eq!(without, ["plain", "loss=2", "itt=30ms:3ms"]);
        assert!(!Part::from("seeds=3").is_seed());
    }

    #[test]
    fn number_is_first_value_of_parameter() {
        let number = |name: &str, of| RunKey::from(name).number(of);
        assert_eq!(number(RUN, "loss"), Some(2.0));
        assert_eq!(number(RUN, "itt"), Some(30.0));
        assert_eq!(number(RUN, "plain"), None);
        assert_eq!(number("queue=red", "queue"), None);
        assert_eq!(Part::from("plain").key(), None);
    }

    #[test]
    fn values_are_unique_in_order_of_runs() {
        let runs = ["plain,n=8,seed=1", "n=2,plain", "n=8,seed=2", "plain"].map(RunKey::from);
        let of = |key| -> Vec<_> { values(&runs, key).into_iter().map(Part::as_str).collect() };
        assert_eq!(of("n"), ["n=8", "n=2"]);
        assert!(of("plain").is_empty());
    }
}
