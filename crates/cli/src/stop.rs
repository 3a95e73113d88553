//! Ending long work early, in good order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use pillion_host::clock::monotonic;

/// A flag that the first SIGINT, SIGTERM or SIGHUP sets, and that wakes the calling thread; a second
/// one ends the process.
pub fn on_signal() -> Result<Arc<AtomicBool>> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
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
