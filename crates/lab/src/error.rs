use std::io;

use pillion_path::PathError;
use pillion_traffic::{ConfigError, ReceiveError};

/// Why the lab could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A network namespace could not be made or entered.
    #[error("network namespace of host {name}: {source}; the lab needs root")]
    Namespace {
        /// The host.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A command of the testbed failed.
    #[error("{host}: {command}: {reason}")]
    Command {
        /// The command.
        command: String,
        /// On which host.
        host: String,
        /// What it said.
        reason: String,
    },
    /// The path between two hosts failed.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The receiver failed.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The traffic of an experiment cannot be.
    #[error(transparent)]
    Traffic(#[from] ConfigError),
    /// The path of an experiment cannot be.
    #[error(transparent)]
    PathConfig(PathError),
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
