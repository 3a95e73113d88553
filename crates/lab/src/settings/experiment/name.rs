use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// Files are called by the names of runs and hosts and a few characters more, and have room for 255.
pub(super) const MOST_CHARACTERS: usize = 200;

/// What a table of a file is called, as in `[group.NAME]`: letters, digits, `-`, `_` and, but for
/// the first, `.`; and no more of them than 200.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        // What begins with a point is hidden among the runs.
        let is_one = !name.is_empty() && !name.starts_with('.') && name.chars().all(allowed);
        if !is_one {
            return Err(D::Error::custom(format!(
                "`{name}` is no name; use letters, digits, -, _ and, but for the first, ."
            )));
        }
        if name.len() > MOST_CHARACTERS {
            return Err(D::Error::custom(format!(
                "a name of {} characters; {MOST_CHARACTERS} are the most, for files are called by it",
                name.len()
            )));
        }
        Ok(Self(name))
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
