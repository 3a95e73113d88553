//! The first process of the guest: it does the work, and switches the machine off.

mod check;
mod cost;
mod environments;
mod link;
mod lockdown;
mod modules;
mod sockets;
mod streams;
mod teller;
mod wire;
mod xdp;

use std::fs;

use nix::sys::reboot::{RebootMode, reboot};
use pillion_lab::engine::make_place;

use crate::report::{JOB_FILE, Job, Part, Report};
use teller::Teller;

/// The binary under test, in the image.
const PILLION: &str = "/bin/pillion";
const PILLION_LAB: &str = "/bin/pillion-lab";

/// Does the work of the first process, and ends the machine.
pub fn run() -> ! {
    if let Err(reason) = work() {
        // The console is all that is left.
        eprintln!("kernels: {reason}");
    }
    loop {
        // The first process must not end.
        let _ = reboot(RebootMode::RB_POWER_OFF);
    }
}

fn work() -> Result<(), String> {
    make_place()?;
    let teller = Teller::open()?;
    let job = fs::read(JOB_FILE).map_err(|error| format!("{JOB_FILE}: {error}"))?;
    let job: Job = serde_json::from_slice(&job).map_err(|error| format!("{JOB_FILE}: {error}"))?;
    teller.part(Part::Boot, || modules::insert(&job.modules))?;
    if !job.environments.is_empty() && teller.part(Part::Check, || check::run(&teller))? {
        teller.part(Part::Environments, || {
            environments::run(&job.environments, job.plain, &teller)
        })?;
    }
    if let Some(wire) = &job.wire {
        // Where something is missing, nothing else can work.
        if teller.part(Part::Check, || check::run(&teller))? {
            teller.part(Part::Cost, || cost::measure(&teller))?;
            teller.part(Part::Streams, || streams::run(&teller))?;
            teller.part(Part::Wire, || wire::run(wire, &job.wire_runs, &teller))?;
            // It cannot be undone, and so is last.
            teller.part(Part::LockedDown, || {
                lockdown::lock().and_then(|()| streams::run_locked_down(&teller))
            })?;
        }
    }
    teller.tell(&Report::End)
}
