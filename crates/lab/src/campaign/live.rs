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

/// Interval of progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of checks whether the other runs are ready.
const READY_INTERVAL: Duration = Duration::from_millis(1);

/// Returns the provenance of runs on this host's kernel: pillion's version.
#[must_use]
pub fn live_provenance(version: &str) -> Provenance {
    Provenance {
        version: version.to_owned(),
        lab_kernel: None,
    }
}

/// Makes runs on this host's kernel in sequence, because parallel runs would disturb each other.
/// Returns, in the order of the runs, each run's folder or the error of [`perform`].
#[must_use]
pub fn make_all_live(runs: &[PlannedRun], campaign: &Campaign) -> Vec<Result<PathBuf, Error>> {
    let made = runs
        .iter()
        .map(|planned| make(planned, campaign, false, || {}));
    made.collect()
}

/// Makes runs in parallel on this host's kernel, so that disturbances affect all equally. pillion's
/// own path gives all the same losses. If one run fails, the others are stopped.
///
/// # Errors
/// As [`perform`]; the first failure, not the stops that it causes in the other runs.
pub fn make_parallel_live<const N: usize>(
    runs: &[PlannedRun; N],
    campaign: &Campaign,
) -> Result<[PathBuf; N], Error> {
    // Each run holds a reference until it is ready or finished.
    let pending = Arc::new(());
    let others = Arc::downgrade(&pending);
    let make = |planned, pending| {
        let pending = Cell::new(Some(pending));
        let made = make(planned, campaign, true, || {
            drop(pending.take());
            while others.strong_count() > 0 && !campaign.stop.load(Ordering::Relaxed) {
                thread::sleep(READY_INTERVAL);
            }
        });
        if made.is_err() {
            campaign.stop.store(true, Ordering::Relaxed);
        }
        made
    };
    let mut made = thread::scope(|scope| {
        let threads = runs.each_ref().map(|planned| {
            let pending = Arc::clone(&pending);
            scope.spawn(move || make(planned, pending))
        });
        drop(pending);
        threads.map(|it| {
            it.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    });
    // The failure that stopped the other runs comes first.
    made.sort_by_key(|it| matches!(it, Err(Error::Stopped)));
    for made in made {
        made?;
    }
    Ok(runs.each_ref().map(|planned| campaign.run_folder(planned)))
}

/// Makes a run. Calls `ready` once the testbed is built; it may wait for other runs.
fn make(
    planned: &PlannedRun,
    campaign: &Campaign,
    own_path: bool,
    ready: impl Fn(),
) -> Result<PathBuf, Error> {
    if campaign.stop.load(Ordering::Relaxed) {
        return Err(Error::Stopped);
    }
    let progress = campaign.progress.start(planned);
    let folder = campaign.run_folder(planned);
    let (sending, finished) = (OnceLock::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        let ticker = scope.spawn(|| {
            while !finished.load(Ordering::Relaxed) {
                let elapsed = sending.get().map(Instant::elapsed);
                progress.reached(elapsed.unwrap_or_default());
                thread::park_timeout(PROGRESS_INTERVAL);
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
        finished.store(true, Ordering::Relaxed);
        ticker.thread().unpark();
        made
    })?;
    Ok(folder)
}
