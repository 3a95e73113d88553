//! Plain TCP beside pillion: the same streams on two identical paths at the same time.

mod config;
mod group;
mod page;
mod table;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

pub use config::DemoConfig;
pub use group::GroupResult;
pub use page::demo_page;
pub use table::demo_table;

use crate::Error;
use group::Group;

/// What the demo found.
#[derive(Debug, Clone, Serialize)]
pub struct Demo {
    /// What was asked for.
    pub config: DemoConfig,
    /// Release of the kernel that it ran on.
    pub kernel: String,
    /// The group with plain TCP.
    pub plain: GroupResult,
    /// The group with bundling.
    pub pillion: GroupResult,
}

/// Runs both groups side by side. `pillion` is the binary whose `traffic` and `run`
/// subcommands make the streams.
///
/// # Errors
/// Any of [`Error`]; [`Error::Void`] if a byte was lost or wrong.
pub fn run_demo(config: &DemoConfig, pillion: &Path) -> Result<Demo, Error> {
    config.validate()?;
    let folder = tempfile::tempdir().map_err(|source| Error::System {
        action: "make a temporary folder",
        source,
    })?;
    let account = folder.path().join("bundler.json");
    let stop = Arc::new(AtomicBool::new(false));
    let mut plain = Group::start("plain TCP", config, pillion, None, &stop)?;
    let mut bundled = Group::start("pillion", config, pillion, Some(&account), &stop)?;

    follow(config, || Ok(plain.has_ended()? & bundled.has_ended()?))?;
    // A receiver that still waits then waits in vain.
    let failed = plain.has_failed()? || bundled.has_failed()?;
    stop.store(failed, Ordering::Relaxed);
    Ok(Demo {
        config: config.clone(),
        kernel: kernel_release(),
        plain: plain.finish()?,
        pillion: bundled.finish()?,
    })
}

fn kernel_release() -> String {
    nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Shows on the terminal how the time passes until both groups have ended.
fn follow(
    config: &DemoConfig,
    mut ended: impl FnMut() -> Result<bool, Error>,
) -> Result<(), Error> {
    let expected = Duration::try_from_secs_f64(config.duration_s).unwrap_or_default();
    let template = "{msg} {wide_bar} {eta} left";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(expected.as_millis() as u64).with_style(style);
    let begun = Instant::now();
    while !ended()? {
        let elapsed = begun.elapsed();
        bar.set_message(if elapsed < expected {
            "sending"
        } else {
            "last bytes"
        });
        bar.set_position(elapsed.min(expected).as_millis() as u64);
        thread::sleep(Duration::from_millis(100));
    }
    bar.finish_and_clear();
    Ok(())
}
