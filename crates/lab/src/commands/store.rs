use std::path::{Path, PathBuf};

use pillion_lab::store::Store;

/// Where runs are kept.
#[derive(clap::Args)]
pub struct StoreArgs {
    /// Where runs are kept
    #[arg(long, value_name = "FOLDER", default_value = "pillion-runs")]
    store: PathBuf,
}

impl StoreArgs {
    pub fn open(&self) -> Store {
        Store::new(&self.store)
    }

    pub fn folder(&self) -> &Path {
        &self.store
    }
}
