//! A running path: its thread, its account and its end.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::{
    Ledger, PathConfig, PathError, Tap,
    carrier::{self, PathState},
};

/// Two TAP devices joined by a thread that carries frames in both directions, until stopped or
/// dropped.
#[derive(Debug)]
pub struct Path {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the path's thread and its owner have in common.
pub(crate) struct Shared {
    state: Mutex<PathState>,
    /// Readable when the path is to end.
    pub stop: EventFd,
}

impl Path {
    /// Joins two devices; forward is from `a` to `b`. The devices may be moved and configured
    /// before or after.
    ///
    /// Fails when a field of the configuration is outside its range, or when the system has no
    /// thread or file descriptor left.
    pub fn start(a: Tap, b: Tap, config: &PathConfig) -> Result<Self, PathError> {
        config.validate()?;
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let shared = Arc::new(Shared {
            state: Mutex::new(PathState::new(config)),
            stop: stop.map_err(|errno| PathError::Thread(errno.into()))?,
        });
        let thread = thread::Builder::new()
            .name("pillion-path".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || carrier::run(&[a, b], &shared)
            })
            .map_err(PathError::Thread)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// The path's account so far.
    pub fn ledger(&self) -> Ledger {
        self.shared.state().ledger()
    }

    /// Ends the path and removes both devices; frames still inside are discarded, and counted as
    /// inside. A device may remain for a moment when this process is just starting a child, which
    /// holds its descriptor until it executes its program.
    pub fn stop(mut self) -> Ledger {
        self.end();
        self.ledger()
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Neither can fail in a way that matters: a counter of one does not overflow, and
            // a thread that panicked has ended.
            let _ = self.shared.stop.write(1);
            let _ = thread.join();
        }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    pub fn state(&self) -> MutexGuard<'_, PathState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Shared")
            .field(&self.state().ledger())
            .finish()
    }
}
