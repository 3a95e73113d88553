//! A pillion that `status` finds before it is at work.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use pillion_cli::print::say_line;

use super::health::Shared;
use super::manager;
use super::status_socket::Listener;

/// One that waits for where it is to bundle. It has no thread yet: what it starts beside itself by
/// then is to be a process of one thread.
pub struct Announced {
    pub(super) shared: Arc<Shared>,
    listener: Option<Listener>,
    /// Whether the file says something else than the rules that hold, for it could not be read again.
    pub(super) is_out_of_date: Cell<bool>,
}

impl Announced {
    /// Can be found from now on; `bundling` is what it is to bundle.
    pub fn begin(bundling: String) -> Self {
        let listener = Listener::begin();
        if let Err(error) = &listener {
            say_line!("pillion: unknown to `pillion status`: {error}");
        }
        Self {
            shared: Arc::new(Shared::new(bundling)),
            listener: listener.ok(),
            is_out_of_date: Cell::new(false),
        }
    }

    /// Its file was read again, or could not be.
    pub fn reloaded(&self, is_read: bool) {
        self.is_out_of_date.set(!is_read);
    }

    /// It is not at work yet, and this is why.
    pub fn waits(&self, why: &str) {
        self.shared.notes(vec![format!("waits: {why}")]);
        manager::waits(why);
    }

    /// What becomes readable when somebody asks.
    pub fn asked(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Answers who has asked.
    pub fn answer(&self) {
        if let Some(listener) = &self.listener {
            listener.answer(&self.shared);
        }
    }

    /// Answers in a thread of its own from now on.
    pub(super) fn serve(self) -> Arc<Shared> {
        if let Some(listener) = self.listener {
            listener.serve(Arc::clone(&self.shared));
        }
        self.shared
    }
}
