use std::fmt;

use crate::Error;

/// A change at run time to report to the operator.
#[derive(Debug)]
pub enum Change {
    /// The programs are now attached to this device or namespace.
    Attached(String),
    /// This device or namespace was removed or renamed.
    Detached(String),
    /// A step failed; it is retried.
    Failed(Error),
    /// The programs are attached to the cgroup again.
    Reattached,
    /// All slots of [`Policy::max_connections`](crate::Policy), or of one user, are taken.
    LimitReached,
    /// Slots are free again.
    BelowLimit,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Attached(name) => write!(f, "attached to {name}"),
            Self::Detached(name) => write!(f, "detached from {name}"),
            Self::Reattached => f.write_str("attached to the cgroup again"),
            Self::LimitReached => write!(
                f,
                "connection limit reached (--max-connections, or half of it for one user): further \
                 connections are not bundled"
            ),
            Self::BelowLimit => write!(f, "connection limit no longer reached"),
            Self::Failed(error) => write!(f, "{error}; retrying"),
        }
    }
}
