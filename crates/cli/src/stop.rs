//! Ending long work early, in good order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};

/// A flag that the first SIGINT, SIGTERM or SIGHUP sets; a second one ends the process.
pub fn on_signal() -> Result<Arc<AtomicBool>> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block().context("block signals")?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    thread::spawn(move || {
        if signals.wait().is_ok() {
            flag.store(true, Ordering::Relaxed);
            let _ = signals.thread_unblock();
        }
        loop {
            thread::park();
        }
    });
    Ok(stop)
}
