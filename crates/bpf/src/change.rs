use std::fmt;

use crate::Error;

/// What has changed while pillion was at work, and an operator may want to know.
#[derive(Debug)]
pub enum Change {
    /// Bundling now takes place at this device or namespace, too.
    Come(String),
    /// This device or namespace is no more, or is called otherwise now.
    Gone(String),
    /// Something could not be done; it is tried again.
    Refused(Error),
    /// The programs are at the cgroup again.
    Back,
    /// There are as many connections as [`Policy::max_connections`](crate::Policy) allows.
    Full,
    /// All connections have found room again.
    Room,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Come(name) => write!(f, "{name} has come: bundling there, too"),
            Self::Gone(name) => write!(f, "{name} has gone"),
            Self::Back => f.write_str("attached to the cgroup again"),
            Self::Full => write!(
                f,
                "as many connections as --max-connections allows, in all or of one user: others \
                 stay plain"
            ),
            Self::Room => write!(f, "there is room for all connections again"),
            Self::Refused(error) => write!(f, "{error}; trying again"),
        }
    }
}
