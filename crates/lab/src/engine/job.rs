//! What host and inside agree on: the work, and how it ended.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The folder where a program inside leaves what is to be copied out.
pub const RESULTS: &str = "/results";

/// The path of the job in the image.
pub(super) const JOB_FILE: &str = "/etc/pillion/job.json";

/// A program to be run inside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The program's name in the image's `/bin`, or its path.
    pub program: String,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// The program's environment, beside `PATH`, `HOME` and `LANG`.
    pub environment: BTreeMap<String, String>,
    /// The virtual time after which the program is stopped.
    pub time_limit: Option<Duration>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The program ended by itself, with this exit status.
    Exited(i32),
    /// The program was killed by this signal.
    Killed(i32),
    /// The program was stopped, its virtual time being over.
    TimeLimit,
}

impl Ending {
    /// The program's exit status, as a shell gives it: 128 + n if signal n ended it, 124 (as
    /// timeout(1)) where its time was over.
    #[must_use]
    pub fn status(self) -> u8 {
        match self {
            Self::Exited(status) => status.to_le_bytes()[0],
            Self::Killed(signal) => signal.to_le_bytes()[0].wrapping_add(128),
            Self::TimeLimit => 124,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exit status {status}"),
            Self::Killed(signal) => write!(f, "signal {signal}"),
            Self::TimeLimit => f.write_str("its limit of virtual time"),
        }
    }
}

/// A line from inside to the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// Virtual time since the kernel's start.
    Reached(Duration),
    /// The program ended, and its results are outside.
    Ended(Ending),
    /// Something other than the program failed, in these words.
    Failed(String),
}
