use std::io;
use std::path::{Path, PathBuf};

use crate::path::PathError;
use crate::settings::experiment::Contradiction;
use crate::traffic::{ConfigError, ReceiveError, SendError};
use pillion_cli::settings::BadInput;

/// An error of the lab.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A network namespace cannot be created or entered.
    #[error("network namespace of host {name}: {source}; the lab needs root")]
    Namespace {
        /// The host in the testbed.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A command of the testbed failed.
    #[error("{host}: {command}: {reason}")]
    Command {
        /// The command with its arguments.
        command: String,
        /// The host on which it ran.
        host: String,
        /// The command's error message.
        reason: String,
    },
    /// The path between two hosts failed.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The receiver failed.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The settings of a run contradict each other.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// A run's traces cannot be read.
    #[error(transparent)]
    Trace(#[from] crate::analysis::OpenError),
    /// An experiment's file is invalid.
    #[error(transparent)]
    Input(#[from] BadInput),
    /// The traffic of an experiment is invalid.
    #[error(transparent)]
    Traffic(#[from] ConfigError),
    /// The kernel rejected the value of a sysctl.
    #[error("{host}: sysctl {setting}: {source}")]
    Sysctl {
        /// The host of the sysctl.
        host: String,
        /// The sysctl with its value.
        setting: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The running kernel lacks a feature that the run needs.
    #[error(
        "this kernel ({kernel}) lacks {feature}: use the lab kernel with `make lab-kernel`, then \
         `--engine virtual`"
    )]
    Unsupported {
        /// The missing feature.
        feature: String,
        /// The kernel's release.
        kernel: String,
    },
    /// The streams cannot be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// pillion cannot bundle the streams.
    #[error(transparent)]
    Bundler(#[from] pillion_bpf::Error),
    /// The bottleneck's queue cannot be observed.
    #[error(transparent)]
    Queue(#[from] crate::queue::Error),
    /// The streams' sockets cannot be sampled.
    #[error(transparent)]
    Sockets(#[from] crate::sockets::Error),
    /// A file of a run cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A complete run cannot be read any longer.
    #[error("{reason}; remove {}, and the same command repeats the run", run.display())]
    Damaged {
        /// The run's folder.
        run: PathBuf,
        /// The error of the damaged file.
        reason: Box<Error>,
    },
    /// Another process holds the lock.
    #[error("{}: another process makes {resource}: wait until it exits, or name another folder", path.display())]
    Busy {
        /// The locked folder or file.
        path: PathBuf,
        /// The thing that the lock protects, as in `this run`.
        resource: &'static str,
    },
    /// The store has no such experiment or run.
    #[error("unknown experiment or run `{name}` in {}: list them with `pillion-lab list`", store.display())]
    NotStored {
        /// The requested name.
        name: String,
        /// The store.
        store: PathBuf,
    },
    /// The caller stopped the run.
    #[error("stopped")]
    Stopped,
    /// The run finished, but its results are invalid.
    #[error("the run is invalid: {0}")]
    Invalid(String),
    /// Any other system call failed.
    #[error("{action}: {source}")]
    System {
        /// The action that failed.
        action: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl Error {
    /// Returns true if the user can fix it by other options or files (exit code 2).
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Contradiction(_)
            | Self::Input(_)
            | Self::Traffic(_)
            | Self::Unsupported { .. }
            | Self::NotStored { .. }
            | Self::Sysctl { .. } => true,
            // `transparent` errors skip these in the chain of causes.
            Self::Send(error) => error.is_bad_input(),
            Self::Receive(error) => error.is_bad_input(),
            Self::Bundler(error) => error.is_bad_input(),
            Self::Queue(error) => error.is_bad_input(),
            _ => false,
        }
    }

    /// Returns a function for `map_err` that adds the file's path.
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
    fn wrapped_error_keeps_is_bad_input() {
        let error = Error::from(ReceiveError::NoStreams);
        assert!(error.is_bad_input());
        let source = io::ErrorKind::OutOfMemory.into();
        let action = "do something";
        assert!(!Error::System { action, source }.is_bad_input());
    }
}
