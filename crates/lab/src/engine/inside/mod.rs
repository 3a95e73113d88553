//! The first process inside: it makes the place, runs the program, and brings its results out.

mod mirror;
mod place;
mod program;
mod results;
mod teller;

use std::env;
use std::fs;

use nix::sys::reboot::{RebootMode, reboot};

use super::job::{JOB_FILE, Job, Report};
use results::Outflow;
use teller::Teller;

/// Whether this process is the first one of a lab kernel.
#[must_use]
pub fn is_init() -> bool {
    std::process::id() == 1 && env::args_os().next().is_some_and(|name| name == "/init")
}

/// Does the work of the first process of a lab kernel, and ends the kernel.
pub fn run_as_init() -> ! {
    if let Err(reason) = work() {
        // Shown by the host as the kernel's last words.
        let _ = fs::write("/dev/kmsg", format!("<2>pillion: {reason}"));
    }
    loop {
        // The first process must not end.
        let _ = reboot(RebootMode::RB_POWER_OFF);
    }
}

/// Makes the place that programs expect, as the first process of any other kernel that starts
/// from an [`Image`](super::Image): the kernel's file systems, folders to write to, a host name,
/// the loopback device.
///
/// # Errors
/// What failed, in a line.
pub fn make_place() -> Result<(), String> {
    place::mount_all()?;
    place::prepare()
}

fn work() -> Result<(), String> {
    place::mount_all()?;
    let teller = Teller::start()?;
    let report = match run() {
        Ok(ending) => Report::Ended(ending),
        Err(reason) => Report::Failed(reason),
    };
    teller.tell(&report)
}

fn run() -> Result<super::Ending, String> {
    place::prepare()?;
    let job = fs::read(JOB_FILE).map_err(|error| format!("{JOB_FILE}: {error}"))?;
    let job: Job = serde_json::from_slice(&job).map_err(|error| format!("{JOB_FILE}: {error}"))?;
    let results = Outflow::begin();
    let ending = program::run(&job)?;
    results.map_or(Ok(()), Outflow::finish)?;
    Ok(ending)
}
