use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::settings::experiment::{Engine, PlannedRun};

use super::Campaign;
use crate::Error;
use crate::run::{RunOptions, Stage, perform};
use crate::store::Provenance;

/// Time between two moves of the progress line.
const TICK: Duration = Duration::from_millis(100);
/// Time between two looks whether the other runs are ready.
const LOOK: Duration = Duration::from_millis(1);

/// What makes a run on this host's kernel: this version of pillion.
#[must_use]
pub fn live_provenance(version: &str) -> Provenance {
    Provenance {
        version: version.to_owned(),
        lab_kernel: None,
    }
}

/// Makes one run after the other on this host's kernel: side by side they would disturb each other.
/// The results are in the order of the runs: the path of each run's folder, or, as in [`perform`],
/// why it is not there.
#[must_use]
pub fn make_all_live(runs: &[PlannedRun], campaign: &Campaign) -> Vec<Result<PathBuf, Error>> {
    let made = runs
        .iter()
        .map(|planned| make(planned, campaign, false, || {}));
    made.collect()
}

/// Makes two runs at the same time on this host's kernel, so that both are disturbed alike; with
/// pillion's own path, so that both lose the same. Where one fails, the other is stopped.
///
/// # Errors
/// As [`perform`]; of two failures, the one that is not for the other's sake.
pub fn make_both_live(runs: &[PlannedRun; 2], campaign: &Campaign) -> Result<[PathBuf; 2], Error> {
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
    planned: &PlannedRun,
    campaign: &Campaign,
    own_path: bool,
    ready: impl Fn(),
) -> Result<PathBuf, Error> {
    if campaign.stop.load(Ordering::Relaxed) {
        return Err(Error::Stopped);
    }
    let progress = campaign.progress.begin(planned);
    let folder = campaign.place(planned);
    let (sending, over) = (OnceLock::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        let ticker = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let since = sending.get().map(Instant::elapsed);
                progress.reached(since.unwrap_or_default());
                thread::park_timeout(TICK);
            }
        });
        let options = RunOptions {
            version: campaign.version,
            engine: Engine::Live,
            lab_kernel: None,
            own_path,
            stop: Arc::clone(campaign.stop),
            progress: &|stage| match stage {
                Stage::Connecting => ready(),
                Stage::Sending(_) => {
                    let _ = sending.set(Instant::now());
                }
                Stage::Building | Stage::Finishing => {}
            },
        };
        let made = perform(&planned.run, &folder, &options);
        over.store(true, Ordering::Relaxed);
        ticker.thread().unpark();
        made
    })?;
    Ok(folder)
}
