use std::io;
use std::path::{Path, PathBuf};

use crate::path::PathError;
use crate::settings::experiment::Contradiction;
use crate::traffic::{ConfigError, ReceiveError, SendError};
use pillion_cli::settings::BadInput;

/// Why the lab could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A network namespace could not be made or entered.
    #[error("network namespace of host {name}: {source}; the lab needs root")]
    Namespace {
        /// The name of the namespace's host.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A command of the testbed failed.
    #[error("{host}: {command}: {reason}")]
    Command {
        /// The command, with its arguments.
        command: String,
        /// The host that the command ran on.
        host: String,
        /// What the command said.
        reason: String,
    },
    /// The path between two hosts failed.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The receiver failed.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The parts of a run contradict each other.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// A run's traces cannot be read.
    #[error(transparent)]
    Trace(#[from] crate::analysis::OpenError),
    /// An experiment's file has mistakes.
    #[error(transparent)]
    Input(#[from] BadInput),
    /// The traffic of an experiment cannot be.
    #[error(transparent)]
    Traffic(#[from] ConfigError),
    /// A parameter of the kernel cannot have this value.
    #[error("{host}: sysctl {setting}: {source}")]
    Sysctl {
        /// The host whose parameter it is.
        host: String,
        /// The parameter and the value.
        setting: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The running kernel cannot do what the run asks for.
    #[error(
        "this kernel, {kernel}, is without {what}; the lab kernel has it: `make lab-kernel`, then `--engine virtual`"
    )]
    Lacks {
        /// What the kernel is without.
        what: String,
        /// The kernel's release.
        kernel: String,
    },
    /// The streams could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The bundler could not be put to work.
    #[error(transparent)]
    Bundler(#[from] pillion_bpf::Error),
    /// The bottleneck's queue could not be watched.
    #[error(transparent)]
    Queue(#[from] crate::queue::Error),
    /// The streams' sockets could not be sampled.
    #[error(transparent)]
    Sockets(#[from] crate::sockets::Error),
    /// A file of a run cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A run that was whole cannot be read any more.
    #[error("{why}; remove {}, and the same command makes the run again", run.display())]
    Damaged {
        /// The run's folder.
        run: PathBuf,
        /// What is wrong.
        why: Box<Error>,
    },
    /// Another process makes the same.
    #[error("{}: another process makes {what} just now; wait for its end, or name another folder", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
        /// What is being made.
        what: &'static str,
    },
    /// There is no such experiment or run.
    #[error("{name}: no experiment or run of {}; `pillion-lab list` names them", store.display())]
    NotStored {
        /// The name that was asked for.
        name: String,
        /// The store in which it was looked for.
        store: PathBuf,
    },
    /// The caller had the run stopped.
    #[error("stopped")]
    Stopped,
    /// The run ended, but cannot be trusted.
    #[error("the run is void: {0}")]
    Void(String),
    /// Any other failure of a system call.
    #[error("{action}: {source}")]
    System {
        /// What was being done.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    /// Whether what was asked for has to change, rather than the machine that it was asked of.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Contradiction(_)
            | Self::Input(_)
            | Self::Traffic(_)
            | Self::Lacks { .. }
            | Self::NotStored { .. }
            | Self::Sysctl { .. } => true,
            // These are not among the causes of an error that only hands them on.
            Self::Send(error) => error.is_bad_input(),
            Self::Receive(error) => error.is_bad_input(),
            Self::Bundler(error) => error.is_bad_input(),
            Self::Queue(error) => error.is_bad_input(),
            _ => false,
        }
    }

    /// The error of something done with a file, for `map_err`.
    pub(crate) fn file(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File {
            path: path.clone(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_on_is_bad_input_if_it_says_so() {
        let said = Error::from(ReceiveError::NoStreams);
        assert!(said.is_bad_input());
        let source = io::ErrorKind::OutOfMemory.into();
        let action = "do something";
        assert!(!Error::System { action, source }.is_bad_input());
    }
}
