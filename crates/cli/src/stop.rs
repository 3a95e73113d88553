//! Orderly stop of long work by signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use pillion_bpf::host::clock::monotonic;

/// Signals that stop long work.
const STOP: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Further signals that would end the process immediately.
const FATAL: [Signal; 4] = [
    Signal::SIGQUIT,
    Signal::SIGABRT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Returns a flag that the first SIGINT, SIGTERM or SIGHUP sets, which also wakes the calling thread. A
/// second signal ends the process.
pub fn on_signal() -> Result<Arc<AtomicBool>> {
    for_signals(STOP.into_iter().collect())
}

/// Like [`on_signal`], and also for SIGQUIT, SIGABRT, SIGUSR1 and SIGUSR2, if a cleanup is required.
pub fn on_any_signal() -> Result<Arc<AtomicBool>> {
    for_signals(STOP.into_iter().chain(FATAL).collect())
}

fn for_signals(signals: SigSet) -> Result<Arc<AtomicBool>> {
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

/// Sleeps until a time of `CLOCK_MONOTONIC`, in nanoseconds, in the thread that called [`on_signal`].
/// Returns false if the flag is set first.
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
