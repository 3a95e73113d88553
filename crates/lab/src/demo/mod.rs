//! Plain TCP beside pillion: the same streams on two identical paths at the same time.

mod page;
mod table;

use std::path::Path;

use serde::Serialize;

pub use page::demo_page;
pub use table::demo_table;

use crate::{Error, Group, GroupConfig, GroupResult, kernel_release, run_together};

/// What the demo found.
#[derive(Debug, Clone, Serialize)]
pub struct Demo {
    /// What the demo was asked for.
    pub config: GroupConfig,
    /// Release of the kernel that the demo ran on.
    pub kernel: String,
    /// The group with plain TCP.
    pub plain: GroupResult,
    /// The group with bundling.
    pub pillion: GroupResult,
}

/// Runs both groups side by side: the one of `config`, and one without bundling that is otherwise
/// alike. `pillion` is the binary whose `traffic` and `run` subcommands make the streams.
///
/// # Errors
/// Any of [`Error`]; [`Error::Void`] if a byte was lost or wrong.
pub fn run_demo(config: &GroupConfig, pillion: &Path) -> Result<Demo, Error> {
    let plain = GroupConfig {
        bundling: None,
        ..config.clone()
    };
    let mut groups = [
        Group::start("plain TCP", &plain, pillion)?,
        Group::start("pillion", config, pillion)?,
    ];
    run_together(&mut groups)?;
    let [plain, bundled] = groups;
    Ok(Demo {
        config: config.clone(),
        kernel: kernel_release(),
        plain: plain.finish()?,
        pillion: bundled.finish()?,
    })
}
