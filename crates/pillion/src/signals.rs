//! Signals that are read, like a file, rather than acted on at once.

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};

/// Has these signals wait to be read, from now on: one that comes early must not be lost, nor kill.
pub fn receive(signals: impl IntoIterator<Item = Signal>) -> Result<SignalFd> {
    let signals = block(signals)?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).context("receive signals")
}

/// Has these signals wait until they are received: they mean nothing yet.
pub fn keep(signals: impl IntoIterator<Item = Signal>) -> Result<()> {
    block(signals).map(drop)
}

fn block(signals: impl IntoIterator<Item = Signal>) -> Result<SigSet> {
    let signals: SigSet = signals.into_iter().collect();
    signals.thread_block().context("block signals")?;
    Ok(signals)
}

/// The signal that has come.
pub fn read(signals: &SignalFd) -> Result<Option<siginfo>> {
    match signals.read_signal() {
        Err(Errno::EINTR) => Ok(None),
        read => read.context("read a signal"),
    }
}
