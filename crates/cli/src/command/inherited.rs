//! What the command is to inherit as if pillion were not there, though pillion itself needs
//! something else.

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};

use crate::disposition::is_ignored;

/// The signal mask, and signals that are ignored.
#[derive(Clone)]
pub struct Inherited {
    mask: SigSet,
    ignored: Vec<Signal>,
}

impl Inherited {
    /// Blocks signals from now on, and has the kernel tell of the end of children.
    pub fn set_aside(blocked: &SigSet) -> nix::Result<Self> {
        // Rust's runtime has changed what becomes of the first.
        let changed = [Signal::SIGPIPE, Signal::SIGCHLD].into_iter();
        let ignored = changed.filter(|signal| is_ignored(*signal)).collect();
        // SAFETY: no handler is installed.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(blocked), Some(&mut mask))?;
        Ok(Self { mask, ignored })
    }

    /// Gives this process, between fork and exec, what was set aside.
    pub fn restore(&self) -> nix::Result<()> {
        for ignored in &self.ignored {
            // SAFETY: no handler is installed.
            unsafe { signal(*ignored, SigHandler::SigIgn) }?;
        }
        self.mask.thread_set_mask()
    }
}
