use std::fmt;

use pillion_stats::names::run;
use serde::Deserialize;

/// Runs, by parts of their names, as in `plain,loss=10`: those that have all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct Selector(Vec<String>);

impl From<String> for Selector {
    fn from(text: String) -> Self {
        let parts = text.split(',').map(str::trim);
        let parts = parts.filter(|part| !part.is_empty()).map(str::to_owned);
        Self(parts.collect())
    }
}

impl Selector {
    /// Whether a run of this name is one of them.
    #[must_use]
    pub fn takes(&self, run: &str) -> bool {
        run::has_all(run, &self.0)
    }

    /// Those that another selector takes as well.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self([self.parts(), other.parts()].concat())
    }

    /// The parts of names.
    #[must_use]
    pub fn parts(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts().join(","))
    }
}
