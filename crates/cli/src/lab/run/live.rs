//! The live engine.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use pillion_lab::Error;
use pillion_lab::run::{How, Stage, perform};
use pillion_settings::experiment::Planned;

use super::Campaign;
use crate::VERSION;

/// Time between two moves of the progress line.
const TICK: Duration = Duration::from_millis(100);

/// Makes one run after the other: side by side they would disturb each other.
pub fn make_all(runs: &[Planned], campaign: &Campaign) -> Vec<Result<PathBuf>> {
    let made = runs.iter().map(|planned| make(planned, campaign));
    made.map(|made| made.map_err(anyhow::Error::from)).collect()
}

fn make(planned: &Planned, campaign: &Campaign) -> Result<PathBuf, Error> {
    if campaign.stop.load(Ordering::Relaxed) {
        return Err(Error::Stopped);
    }
    let line = campaign.board.begin(planned);
    let folder = campaign.place(planned);
    let (sending, over) = (OnceLock::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let since = sending.get().map(Instant::elapsed);
                line.reached(since.unwrap_or_default());
                thread::park_timeout(TICK);
            }
        });
        let how = How {
            version: VERSION,
            engine: "live",
            lab_kernel: None,
            stop: Arc::clone(campaign.stop),
            progress: &|stage| {
                if let Stage::Sending(_) = stage {
                    let _ = sending.set(Instant::now());
                }
            },
        };
        let made = perform(&planned.run, &folder, &how);
        over.store(true, Ordering::Relaxed);
        made
    })?;
    Ok(folder)
}
