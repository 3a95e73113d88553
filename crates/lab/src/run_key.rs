//! Names of runs, such as `plain,loss=2,seed=1`: the variant, the values of what is varied, and the seed.

use std::fmt;

use serde::Deserialize;

const SEED: &str = "seed";

/// A part of a run's name: a variant, as `plain`, or the value of a parameter, as `loss=2`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    text: String,
    /// The length of the parameter's name; `None` of a variant.
    key: Option<usize>,
}

impl Part {
    /// The part as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The parameter that the part is a value of; `None` of a variant.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.map(|length| &self.text[..length])
    }

    /// The value of the parameter; `None` of a variant.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.key.map(|length| &self.text[length + 1..])
    }

    /// True if the part is the seed.
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

/// A parsed run name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunKey {
    text: String,
    parts: Vec<Part>,
}

impl RunKey {
    /// The run's name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The parts of the name, in its order.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter()
    }

    /// The parts without the seed: equal for all repetitions of a run.
    pub fn without_seed(&self) -> impl Iterator<Item = &Part> {
        self.parts().filter(|part| !part.is_seed())
    }

    /// True if the run has this part in its name.
    #[must_use]
    pub fn has(&self, part: &Part) -> bool {
        self.parts.contains(part)
    }

    /// The numeric value of a parameter, of `30:3` the first number; `None` if it is absent or no number.
    #[must_use]
    pub fn number(&self, parameter: &str) -> Option<f64> {
        let part = self.parts().find(|part| part.key() == Some(parameter))?;
        part.value()?.split(':').next()?.parse().ok()
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

/// The parts that give a parameter a value in the names of these runs, each once, in the runs' order.
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

/// Selects the runs that have all of these parts, as in `plain,loss=10`; empty: all runs.
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
    /// Whether a run is one of them.
    #[must_use]
    pub fn takes(&self, run: &RunKey) -> bool {
        self.0.iter().all(|part| run.has(part))
    }

    /// Selects the runs that both select.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self([self.parts(), other.parts()].concat())
    }

    /// The selector with one part replaced by another.
    #[must_use]
    pub fn replacing(&self, part: &Part, by: &Part) -> Self {
        let parts = self.0.iter();
        let replaced = parts.map(|it| if it == part { by } else { it });
        replaced.cloned().collect()
    }

    /// The parts of names.
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

    const RUN: &str = "plain,loss=2,itt=30:3,seed=1";

    #[test]
    fn run_has_the_parts_of_its_name_whole() {
        let takes = |selector: &str| Selector::from(selector).takes(&RunKey::from(RUN));
        assert!(takes("loss=2, plain"));
        assert!(takes(""));
        for other in ["loss", "loss=22", "lain", "2"] {
            assert!(!takes(&format!("plain,{other}")), "{other}");
        }
    }

    #[test]
    fn runs_that_differ_by_their_seed_are_alike_without() {
        let run = RunKey::from(RUN);
        let without: Vec<_> = run.without_seed().map(Part::as_str).collect();
        assert_eq!(without, ["plain", "loss=2", "itt=30:3"]);
        assert!(!Part::from("seeds=3").is_seed());
    }

    #[test]
    fn numbers_are_found_by_what_they_are_of() {
        let number = |name: &str, of| RunKey::from(name).number(of);
        assert_eq!(number(RUN, "loss"), Some(2.0));
        assert_eq!(number(RUN, "itt"), Some(30.0));
        assert_eq!(number(RUN, "plain"), None);
        assert_eq!(number("queue=red", "queue"), None);
        assert_eq!(Part::from("plain").key(), None);
    }

    #[test]
    fn values_come_once_each_as_runs_have_them() {
        let runs = ["plain,n=8,seed=1", "n=2,plain", "n=8,seed=2", "plain"].map(RunKey::from);
        let of = |key| -> Vec<_> { values(&runs, key).into_iter().map(Part::as_str).collect() };
        assert_eq!(of("n"), ["n=8", "n=2"]);
        assert!(of("plain").is_empty());
    }
}
