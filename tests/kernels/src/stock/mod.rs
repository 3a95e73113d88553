//! Kernels as a distribution ships them: found in its archive, verified, and kept in a cache.
//!
//! Nothing is installed, and the host's own package sources stay as they are.

mod archive;
mod cache;
mod modules;

use std::path::PathBuf;

pub use cache::find;
pub use modules::Modules;

/// A kernel's files.
#[derive(Debug, Clone, Default)]
pub struct Stock {
    /// What `uname -r` says.
    pub release: String,
    /// The version of its package.
    pub version: String,
    /// The image that is booted.
    pub image: PathBuf,
    /// The folder of its modules.
    pub modules: PathBuf,
}
