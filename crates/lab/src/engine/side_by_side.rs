use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use super::EngineError;

/// The processor cores that this process may run on.
///
/// # Errors
/// [`EngineError::System`].
pub fn cores() -> Result<Vec<usize>, EngineError> {
    let allowed = sched_getaffinity(Pid::from_raw(0))
        .map_err(|errno| EngineError::system("ask for the processor's cores")(errno.into()))?;
    let cores = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false));
    Ok(cores.collect())
}

/// Does every piece of work, in their order, as many at a time as there are cores, each on a core
/// of its own. Returns the results in the order of the work.
pub fn side_by_side<W: Sync, R: Send>(
    cores: &[usize],
    work: &[W],
    each: impl Fn(usize, &W) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for core in cores.iter().take(work.len()) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(piece) = work.get(place) else {
                        return;
                    };
                    let result = each(*core, piece);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((place, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}
