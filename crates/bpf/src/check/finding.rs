use std::fs;

use serde::Serialize;

/// How a finding bears on bundling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// The finding is as it should be.
    Ok,
    /// Bundling works, but not as well as it could.
    Warning,
    /// Bundling cannot work.
    Missing,
}

/// One thing that bundling needs, and whether this host has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// How the finding bears on bundling.
    pub standing: Standing,
    /// What was found, in words.
    pub found: String,
    /// What the user should do, where something should be done.
    pub remedy: Option<String>,
}

impl Finding {
    pub(crate) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            standing: Standing::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    pub(crate) fn bad(
        name: &'static str,
        standing: Standing,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            name,
            standing,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// A file of the kernel's in one line; empty where it cannot be read.
pub(super) fn read(path: &str) -> String {
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}
