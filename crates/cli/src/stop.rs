//! Ending long work early, in good order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use pillion_bpf::host::clock::monotonic;

/// What ends long work.
const ENDS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// What else others may send that would end a process at once.
const ENDS_AT_ONCE: [Signal; 4] = [
    Signal::SIGQUIT,
    Signal::SIGABRT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// A flag that the first SIGINT, SIGTERM or SIGHUP sets, and that wakes the calling thread; a second
/// one ends the process.
pub fn on_signal() -> Result<Arc<AtomicBool>> {
    on(ENDS.into_iter().collect())
}

/// Like [`on_signal`], but also for SIGQUIT, SIGABRT, SIGUSR1 and SIGUSR2, where cleaning up is
/// necessary.
pub fn on_any_signal() -> Result<Arc<AtomicBool>> {
    on(ENDS.into_iter().chain(ENDS_AT_ONCE).collect())
}

fn on(signals: SigSet) -> Result<Arc<AtomicBool>> {
    signals.thread_block().context("block signals")?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let caller = thread::current();
    thread::spawn(move || {
        if signals.wait().is_ok() {
            flag.store(true, Ordering::Relaxed);
            caller.unpark();
            let _ = signals.thread_unblock();
        }
        loop {
            thread::park();
        }
    });
    Ok(stop)
}

/// Has the thread that called [`on_signal`] sleep until a time of `CLOCK_MONOTONIC`, in nanoseconds;
/// false if the flag is set by then.
pub fn sleep_until(time_ns: u64, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let left = Duration::from_nanos(time_ns).saturating_sub(monotonic());
        if left.is_zero() {
            return true;
        }
        thread::park_timeout(left);
    }
}
