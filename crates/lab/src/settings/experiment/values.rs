//! Names and shares in experiment files.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use pillion_cli::settings::times::parse_percent;
use pillion_cli::settings::{BadInput, text};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum characters of a name. File names consist of the names of a run and a host and a few
/// characters, and have at most 255.
pub(super) const MAX_NAME_LENGTH: usize = 200;

/// Name of a table in a file, as in `[group.NAME]`: at most 200 letters, digits, `-`, `_` and,
/// except at the start, `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        // A folder whose name starts with a dot is hidden.
        let is_one = !name.is_empty() && !name.starts_with('.') && name.chars().all(allowed);
        if !is_one {
            return Err(D::Error::custom(format!(
                "invalid name `{name}`: expected letters, digits, -, _ and, except at the start, ."
            )));
        }
        if name.len() > MAX_NAME_LENGTH {
            return Err(D::Error::custom(format!(
                "name of {} characters: the maximum is {MAX_NAME_LENGTH}, because files are named after it",
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

/// Share from 0 to 1; per cent in files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Share(f64);

const EXPECTED: &str = "expected per cent, 0 to 100";

impl Share {
    /// Returns the share, from 0 to 1.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }

    /// Creates a share from 0 to 1.
    pub(super) fn of(share: f64) -> Self {
        Self(share)
    }
}

/// Parses a percentage with its sign, as in `5%`.
pub(super) fn parse_share(text: &str) -> Result<Share, BadInput> {
    parse_percent(text)?.try_into()
}

impl TryFrom<f64> for Share {
    type Error = BadInput;

    fn try_from(percent: f64) -> Result<Self, BadInput> {
        match (0.0..=100.0).contains(&percent) {
            true => Ok(Self(percent / 100.0)),
            false => Err(EXPECTED.into()),
        }
    }
}

impl From<Share> for f64 {
    /// Returns the shortest percentage that is parsed as this share.
    fn from(Share(share): Share) -> Self {
        let percent = share * 100.0;
        let rounded = (0..17).filter_map(|digits| format!("{percent:.digits$}").parse().ok());
        let mut same = rounded.filter(|rounded: &f64| rounded / 100.0 == share);
        same.next().unwrap_or(percent)
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        text::serialize(self, to)
    }
}

impl FromStr for Share {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let percent: f64 = text.trim().parse().map_err(|_| EXPECTED)?;
        percent.try_into()
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f64::from(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_formatted_as_parsed() {
        for thousandths in 0..=100_000 {
            let percent = f64::from(thousandths) / 1e3;
            let share: Share = percent.try_into().unwrap();
            assert_eq!(f64::from(share), percent);
        }
    }
}
