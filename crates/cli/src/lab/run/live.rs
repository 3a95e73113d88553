//! The live engine.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use pillion_lab::Error;
use pillion_lab::run::{How, Stage, perform};
use pillion_lab::store::Maker;
use pillion_settings::experiment::{Engine, Planned};

use super::Campaign;
use crate::VERSION;

/// Time between two moves of the progress line.
const TICK: Duration = Duration::from_millis(100);
/// Time between two looks whether the other runs are ready.
const LOOK: Duration = Duration::from_millis(1);

/// What makes a run here.
pub fn maker() -> Maker {
    Maker {
        version: VERSION.to_owned(),
        lab_kernel: None,
    }
}

/// Makes one run after the other: side by side they would disturb each other.
pub fn make_all(runs: &[Planned], campaign: &Campaign) -> Vec<Result<PathBuf>> {
    let made = runs
        .iter()
        .map(|planned| make(planned, campaign, false, || {}));
    made.map(|made| made.map_err(anyhow::Error::from)).collect()
}

/// Makes two runs at the same time, so that both are disturbed alike; with pillion's own path, so
/// that both lose the same. Where one fails, the other is stopped.
pub fn make_both(runs: &[Planned; 2], campaign: &Campaign) -> Result<[PathBuf; 2], Error> {
    // Each run holds it until it is ready, or over.
    let awaited = Arc::new(());
    let others = Arc::downgrade(&awaited);
    let make = |planned, awaited| {
        let awaited = Cell::new(Some(awaited));
        let made = make(planned, campaign, true, || {
            drop(awaited.take());
            while others.strong_count() > 0 && !campaign.stop.load(Ordering::Relaxed) {
                thread::sleep(LOOK);
            }
        });
        if made.is_err() {
            campaign.stop.store(true, Ordering::Relaxed);
        }
        made
    };
    let [one, other] = runs;
    let (one, other) = thread::scope(|scope| {
        let too = Arc::clone(&awaited);
        let one = scope.spawn(|| make(one, too));
        let other = make(other, awaited);
        let one = one.join();
        (
            one.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            other,
        )
    });
    match (one, other) {
        (Ok(one), Ok(other)) => Ok([one, other]),
        // It was the other one that failed.
        (Err(Error::Stopped), Err(why)) | (Err(why), _) | (_, Err(why)) => Err(why),
    }
}

/// Makes a run; `ready` is called when all is built, and may wait.
fn make(
    planned: &Planned,
    campaign: &Campaign,
    own_path: bool,
    ready: impl Fn(),
) -> Result<PathBuf, Error> {
    if campaign.stop.load(Ordering::Relaxed) {
        return Err(Error::Stopped);
    }
    let line = campaign.board.begin(planned);
    let folder = campaign.place(planned);
    let (sending, over) = (OnceLock::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        let ticker = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let since = sending.get().map(Instant::elapsed);
                line.reached(since.unwrap_or_default());
                thread::park_timeout(TICK);
            }
        });
        let how = How {
            version: VERSION,
            engine: Engine::Live,
            lab_kernel: None,
            own_path,
            stop: Arc::clone(campaign.stop),
            progress: &|stage| match stage {
                Stage::Connecting => ready(),
                Stage::Sending(_) => {
                    let _ = sending.set(Instant::now());
                }
                Stage::Building | Stage::Ending => {}
            },
        };
        let made = perform(&planned.run, &folder, &how);
        over.store(true, Ordering::Relaxed);
        ticker.thread().unpark();
        made
    })?;
    Ok(folder)
}
