//! What the command is to inherit as if pillion were not there, though pillion itself needs
//! something else.

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};

use crate::disposition::{is_ignored, outlive_file_limit};

/// The signal mask that this process was started with, and which signals it was to ignore.
#[derive(Clone)]
pub struct Inherited {
    mask: SigSet,
    ignored: Vec<Signal>,
    /// Signals that are not to be ignored, of those whose disposition pillion or its runtime has
    /// changed.
    heard: Vec<Signal>,
}

impl Inherited {
    /// Blocks signals from now on, and has the kernel tell of the end of children.
    pub fn set_aside(blocked: &SigSet) -> nix::Result<Self> {
        // Rust's runtime has changed what becomes of the first.
        let changed = [Signal::SIGPIPE, Signal::SIGCHLD, Signal::SIGXFSZ];
        let (ignored, heard) = changed.into_iter().partition(|signal| is_ignored(*signal));
        outlive_file_limit()?;
        // SAFETY: no handler is installed.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(blocked), Some(&mut mask))?;
        Ok(Self {
            mask,
            ignored,
            heard,
        })
    }

    /// Gives this process, between fork and exec, the mask and the dispositions that were set
    /// aside.
    pub fn restore(&self) -> nix::Result<()> {
        let ignored = self.ignored.iter().map(|it| (it, SigHandler::SigIgn));
        let heard = self.heard.iter().map(|it| (it, SigHandler::SigDfl));
        for (changed, handler) in ignored.chain(heard) {
            // SAFETY: no handler is installed.
            unsafe { signal(*changed, handler) }?;
        }
        self.mask.thread_set_mask()
    }
}
