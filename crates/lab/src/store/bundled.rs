use super::StoredRun;
use crate::Error;
use crate::run::{BUNDLING_FILE, GroupBundled};

impl StoredRun {
    /// What pillion did for each group that it bundled; for none where it bundled none.
    pub(crate) fn bundled(&self) -> Result<Vec<GroupBundled>, Error> {
        match self.path.join(BUNDLING_FILE).exists() {
            true => self.json(BUNDLING_FILE),
            false => Ok(Vec::new()),
        }
    }
}
