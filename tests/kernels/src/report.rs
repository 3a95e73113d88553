//! What host and guest agree on: the work, and what is told of it, a line of JSON each.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::catalogue::Environment;

/// Where the image holds the work.
pub const JOB_FILE: &str = "/etc/pillion/kernels.json";

/// The port that reports go out by; the kernel's console is another.
pub const REPORTS: &str = "/dev/ttyS1";

/// What is to be done inside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Files of modules, in the order in which they are inserted.
    pub modules: Vec<String>,
    /// The program with the tests of the wire; without one, nothing but booting is asked for.
    pub wire: Option<String>,
    /// The arguments of `wire`, of one run after the other.
    pub wire_runs: Vec<Vec<String>>,
    /// Environments for streams; they run in place of all other work.
    pub environments: Vec<Environment>,
    /// No pillion bundles in the environments.
    pub plain: bool,
}

/// A part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Booting, and inserting modules.
    Boot,
    /// `pillion check`.
    Check,
    /// What the verifier looked at.
    Cost,
    /// Streams from end to end.
    Streams,
    /// The tests of the wire.
    Wire,
    /// A stream, once the kernel is locked down.
    LockedDown,
    /// Streams through environments.
    Environments,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Boot => "boot",
            Self::Check => "pillion check",
            Self::Cost => "cost of verification",
            Self::Streams => "streams",
            Self::Wire => "tests of the wire",
            Self::LockedDown => "stream, locked down",
            Self::Environments => "environments",
        })
    }
}

/// One thing that `pillion check` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub name: String,
    /// `ok`, `warning` or `missing`.
    pub standing: String,
    pub found: String,
}

/// What became of a stream whose every byte was verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// How it was bundled.
    pub name: String,
    pub messages: u64,
    pub bytes: u64,
    pub redundant_bytes: u64,
    pub hidden_losses: u64,
    pub reactions: u64,
}

/// Instructions that the verifier looked at, by program.
pub type Costs = BTreeMap<String, u32>;

/// A line from inside to the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    Check(Vec<Finding>),
    Costs(Costs),
    Stream(Stream),
    /// A line that the tests of the wire printed.
    Wire(String),
    /// One that they printed when those that had failed were run again, one at a time, maybe twice.
    WireAgain(String),
    /// A part is over.
    Done(Part),
    /// A part failed, and why; what it found before stands.
    Failed(Part, String),
    /// All parts are over.
    End,
}
