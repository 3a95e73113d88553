use serde::Deserialize;

use super::StoredRun;
use crate::Error;
use crate::run::MANIFEST_FILE;

/// What made a run, or is to make one. What two of them make of one run's file may differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Maker {
    /// pillion's version.
    pub version: String,
    /// What identifies the lab kernel; `None` of others.
    #[serde(default)]
    pub lab_kernel: Option<String>,
}

impl StoredRun {
    /// What made the run.
    ///
    /// # Errors
    /// [`Error::File`], if it is not whole as well.
    pub fn maker(&self) -> Result<Maker, Error> {
        self.json(MANIFEST_FILE)
    }
}
