use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::Breakdown;

/// Why a program could not be run in the lab kernel.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// There is no kernel where one is looked for.
    #[error("no lab kernel at {}; `make lab-kernel` builds one", .0.display())]
    NoKernel(PathBuf),
    /// There is no kernel whose clock ticks so often.
    #[error(
        "no lab kernel of {ticks} ticks a second at {}; `lab-kernel/build --ticks {ticks}` builds \
         one", path.display()
    )]
    NoTicks {
        /// Ticks a second.
        ticks: u32,
        /// Where the kernel was looked for.
        path: PathBuf,
    },
    /// A program or file for the image cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The program or file.
        path: PathBuf,
        /// Why the program or file cannot be used.
        reason: String,
    },
    /// Programs for the image are not on this host.
    #[error("not found on this host: {0}")]
    MissingTools(String),
    /// The kernel ended by itself before the program did.
    #[error("the lab kernel ended before its program did: {0}")]
    Died(Breakdown),
    /// Something other than the program failed inside, in these words.
    #[error("inside the lab kernel: {0}")]
    Inside(String),
    /// Virtual time stands still.
    #[error(
        "virtual time stands still at {:.3} s for {} s: computing takes no virtual time, so look \
         for a link without a rate, or a program that polls", at.as_secs_f64(), waited.as_secs()
    )]
    Stalled {
        /// Virtual time from the kernel's start to where it stands still.
        at: Duration,
        /// Real time without progress of virtual time.
        waited: Duration,
    },
    /// The program takes longer than was allowed.
    #[error(
        "stopped after {} s, at {:.3} s of virtual time", limit.as_secs_f64(), at.as_secs_f64()
    )]
    Late {
        /// Virtual time from the kernel's start to when it was stopped.
        at: Duration,
        /// Real time allowed.
        limit: Duration,
    },
    /// The caller had the kernel stopped.
    #[error("stopped")]
    Stopped,
    /// Any other failure of a system call.
    #[error("{action}: {source}")]
    System {
        /// What was being done.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl EngineError {
    /// Whether what was asked for has to change, rather than the machine that it was asked of.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::NoKernel(_) | Self::File { .. } | Self::MissingTools(_)
        )
    }

    pub(super) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
