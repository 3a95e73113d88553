//! Protocol between host and guest: the job, and reports as one line of JSON each.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::catalogue::Environment;

/// Path of the job in the image.
pub const JOB_FILE: &str = "/etc/pillion/kernels.json";

/// Serial port for reports; the kernel's console uses another. The first port of arm64's machine is
/// `ttyAMA0`.
pub const REPORTS: &str = if cfg!(target_arch = "aarch64") {
    "/dev/ttyS0"
} else {
    "/dev/ttyS1"
};

/// Work of the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Module files, in the order of insertion.
    pub modules: Vec<String>,
    /// Program with the wire tests; without one the guest only boots.
    pub wire: Option<String>,
    /// Arguments of `wire` for each run.
    pub wire_runs: Vec<Vec<String>>,
    /// Environments to run instead of all other work.
    pub environments: Vec<Environment>,
    /// Runs the environments without pillion.
    pub plain: bool,
}

/// Part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Booting and inserting modules.
    Boot,
    /// `pillion check`.
    Check,
    /// Verification cost.
    Cost,
    /// End-to-end streams.
    Streams,
    /// Wire tests.
    Wire,
    /// A stream in a locked-down kernel.
    LockedDown,
    /// Streams through environments.
    Environments,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Boot => "boot",
            Self::Check => "pillion check",
            Self::Cost => "verification cost",
            Self::Streams => "streams",
            Self::Wire => "wire tests",
            Self::LockedDown => "stream in a locked-down kernel",
            Self::Environments => "environments",
        })
    }
}

/// Result of one check of `pillion check`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    pub name: String,
    /// `ok`, `warning` or `missing`.
    pub severity: String,
    pub value: String,
}

/// Result of a stream whose every byte was verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Method of bundling.
    pub name: String,
    pub messages: u64,
    pub bytes: u64,
    pub redundant_bytes: u64,
    pub hidden_losses: u64,
    pub reactions: u64,
}

/// Number of verified instructions by program.
pub type Costs = BTreeMap<String, u32>;

/// Line from guest to host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    Check(Vec<CheckResult>),
    Costs(Costs),
    Stream(Stream),
    /// Output line of the wire tests.
    Wire(String),
    /// Output line of a serial rerun of failed wire tests; there are at most two reruns.
    WireAgain(String),
    /// A part has ended.
    Done(Part),
    /// A part failed, with a reason; its earlier reports remain valid.
    Failed(Part, String),
    /// All parts have ended.
    End,
}
